package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"time"
)

const (
	streamSize = 1 << 30
	manyOpen   = 200 // streams that are open at a time
	asked      = 500 // requests in a row, in each round
	brokerRuns = 5
)

// broker compares sb-broker with nginx as it ends TLS and begins it again towards the
// same server, and with no proxy at all. Every request has a placeholder, so that
// the broker asks its keeper, writes to the log and looks through the answer.
func broker() error {
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // nginx's worker is another user's
		return err
	}
	certificate, trust, err := newCertificate(dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(serveBench), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}, ErrorLog: log.New(io.Discard, "", 0)}
	defer server.Close()
	go server.ServeTLS(l, "", "")
	at := l.Addr().String()
	direct := &proxy{name: "nothing", trust: trust, dial: func() (net.Conn, error) { return net.Dial("tcp", at) }}
	nginx, err := startNginx(dir, at, trust)
	if err != nil {
		return err
	}
	defer nginx.stop()
	ours, err := startBroker(dir, at)
	if err != nil {
		return err
	}
	defer ours.stop()
	for _, http2 := range []bool{false, true} {
		err = errors.Join(err, addedTime(http2, direct, ours, nginx), streams(http2, ours, nginx))
	}
	ours.stop()
	return errors.Join(err, manyStreams(dir, at, nginx))
}

// serveBench is the server: PUT takes a body, another path is so many bytes, behind
// which one below /wait holds the stream open.
func serveBench(w http.ResponseWriter, r *http.Request) {
	if r.Method == "PUT" {
		io.Copy(io.Discard, r.Body)
		return
	}
	size, _ := strconv.ParseInt(path.Base(r.URL.Path), 10, 64)
	if path.Dir(r.URL.Path) == "/wait" {
		io.CopyN(w, zeros{}, size)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	io.CopyN(w, zeros{}, size)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func ask(c *http.Client, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequest(method, "https://"+boundName+path, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.ContentLength = streamSize
	}
	r.Header.Set("X-Api-Key", placeholder)
	res, err := c.Do(r)
	if err == nil && res.StatusCode != 200 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		res.Body.Close()
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, text)
	}
	return res, err
}

func whole(c *http.Client, method, path string, body io.Reader, want int64) error {
	res, err := ask(c, method, path, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if err == nil && n != want {
		err = fmt.Errorf("%s %s: %d bytes came", method, path, n)
	}
	return err
}

func versionOf(http2 bool) string {
	if http2 {
		return "h2"
	}
	return "HTTP/1.1"
}

// addedTime compares small requests on connections that stand, in turn.
func addedTime(http2 bool, direct *proxy, others ...*proxy) error {
	all := append([]*proxy{direct}, others...)
	took := make([][]time.Duration, len(all))
	clients := make([]*http.Client, len(all))
	for i, p := range all {
		clients[i] = p.client(http2)
		defer clients[i].CloseIdleConnections()
		if err := whole(clients[i], "GET", "/100", nil, 100); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for range brokerRuns * asked {
		for i := range all {
			began := time.Now()
			if err := whole(clients[i], "GET", "/100", nil, 100); err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	base := median(took[0])
	fmt.Printf("%s: a request, median: direct %v", versionOf(http2), base.Round(time.Microsecond))
	for i, p := range others {
		fmt.Printf(", %s %v", p.name, median(took[i+1]).Round(time.Microsecond))
	}
	fmt.Println()
	return report(versionOf(http2)+": sb-broker adds to the median request", float64(median(took[1])-base)/1e6, "ms", 1.0)
}

// streams compares bodies of 1 GiB both ways, in turn.
func streams(http2 bool, ours, nginx *proxy) (err error) {
	for _, way := range []string{"down", "up"} {
		var ratios []float64
		cpu := map[string][]float64{}
		for range brokerRuns {
			var took [2]float64
			for i, p := range []*proxy{ours, nginx} {
				c := p.client(http2)
				before, began := p.cpu(), time.Now()
				var err error
				if way == "down" {
					err = whole(c, "GET", fmt.Sprint("/", streamSize), nil, streamSize)
				} else {
					err = whole(c, "PUT", "/", io.LimitReader(zeros{}, streamSize), 0)
				}
				if err != nil {
					return fmt.Errorf("%s: %s: %w", p.name, way, err)
				}
				took[i] = time.Since(began).Seconds()
				cpu[p.name] = append(cpu[p.name], p.cpu()-before)
				c.CloseIdleConnections()
			}
			fmt.Printf("  %s %s: sb-broker %.0f MiB/s, nginx %.0f MiB/s\n", versionOf(http2), way, 1024/took[0], 1024/took[1])
			ratios = append(ratios, took[1]/took[0])
		}
		for _, all := range cpu {
			slices.Sort(all)
		}
		slices.Sort(ratios)
		fmt.Printf("%s, 1 GiB %s: CPU seconds sb-broker %.2f, nginx %.2f\n", versionOf(http2), way, cpu["sb-broker"][brokerRuns/2], cpu["nginx"][brokerRuns/2])
		err = errors.Join(err, atLeast(fmt.Sprintf("%s, 1 GiB %s: speed against nginx", versionOf(http2), way), ratios[brokerRuns/2], "times", 0.5))
	}
	return err
}

func atLeast(what string, got float64, unit string, limit float64) error {
	fmt.Printf("%-58s %8.2f %-6s (at least %.2f)\n", what, got, unit, limit)
	if got < limit {
		return fmt.Errorf("%s: %.2f %s is under %.2f", what, got, unit, limit)
	}
	return nil
}

// opening is how streams come to be: one after the other, each with an event, or all
// at once, each behind a longer beginning.
type opening struct {
	how    string
	atOnce bool
	size   int64
}

var openings = []opening{{"in turn", false, 11}, {"at once", true, 100 << 10}}

// manyStreams weighs a fresh broker that answers many at a time: events that come
// now and then, as of a model that is asked.
func manyStreams(dir, server string, nginx *proxy) (err error) {
	for _, http2 := range []bool{false, true} {
		for _, how := range openings {
			ours, err2 := startBroker(dir, server)
			if err2 != nil {
				return err2
			}
			idle := ours.resident()
			held, err2 := how.weigh(ours, http2)
			ours.stop()
			if err2 != nil {
				return err2
			}
			theirs, err2 := how.weigh(nginx, http2)
			if err2 != nil {
				return err2
			}
			fmt.Printf("%s: resident idle %.1f MB, nginx with %d streams opened %s %.1f MB\n", versionOf(http2), idle, manyOpen, how.how, theirs)
			err = errors.Join(err, report(fmt.Sprintf("%s: resident memory with %d streams, opened %s", versionOf(http2), manyOpen, how.how), held, "MB", 40))
		}
	}
	return err
}

// weigh opens streams and weighs p a second after the last of them has begun to wait.
func (o opening) weigh(p *proxy, http2 bool) (mb float64, err error) {
	c := p.client(http2)
	defer c.CloseIdleConnections()
	begun := make(chan error, manyOpen)
	done := make(chan struct{})
	defer close(done)
	open := func() {
		res, err := ask(c, "GET", fmt.Sprint("/wait/", o.size), nil)
		if err != nil {
			begun <- err
			return
		}
		defer res.Body.Close()
		_, err = io.CopyN(io.Discard, res.Body, o.size)
		begun <- err
		<-done
	}
	for range manyOpen {
		go open()
		if !o.atOnce {
			err = errors.Join(err, <-begun)
		}
	}
	for range manyOpen {
		if o.atOnce {
			err = errors.Join(err, <-begun)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.name, err)
	}
	time.Sleep(time.Second)
	return p.resident(), nil
}
