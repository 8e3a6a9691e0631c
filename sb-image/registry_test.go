package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sb/lib/say"
)

// counter counts requests by method and path, and can answer in the registry's place.
type counter struct {
	mu     sync.Mutex
	seen   map[string]int
	answer func(http.ResponseWriter, *http.Request) bool
}

func (c *counter) wrap(h http.Handler) http.Handler {
	c.seen = map[string]int{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.seen[r.Method+" "+r.URL.Path]++
		answer := c.answer
		c.mu.Unlock()
		if answer == nil || !answer(w, r) {
			h.ServeHTTP(w, r)
		}
	})
}

// gets is how often something of that name was fetched.
func (c *counter) gets(part string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, times := range c.seen {
		if strings.HasPrefix(what, "GET ") && strings.Contains(what, part) {
			n += times
		}
	}
	return n
}

// onGet makes the registry answer that way when a path with part in it is asked for.
func (c *counter) onGet(part string, answer http.HandlerFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = func(w http.ResponseWriter, r *http.Request) bool {
		hit := r.Method == "GET" && strings.Contains(r.URL.Path, part)
		if hit {
			answer(w, r)
		}
		return hit
	}
}

// calm makes the registry answer as it should.
func (c *counter) calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = nil
}

func layerOf(d map[string]any, l *testLayout) string {
	l.t.Helper()
	b, err := os.ReadFile(l.blobFile(d["digest"].(string)))
	if err != nil {
		l.t.Fatal(err)
	}
	m, err := parseManifest(b)
	if err != nil {
		l.t.Fatal(err)
	}
	return m.Layers[len(m.Layers)-1].Digest
}

func TestIndex(t *testing.T) {
	l, c := newLayout(t), &counter{}
	amd, amdConfig := l.image("amd64", gzipLayer(small(t, "a", "amd64")))
	arm, armConfig := l.image("arm64", zstdLayer(small(t, "a", "arm64")))
	arm["platform"].(map[string]any)["variant"] = "v8"
	attest, _ := l.image("unknown", plainLayer(small(t, "x", "y")))
	attest["platform"] = map[string]any{"os": "unknown", "architecture": "unknown"}
	index := l.blob(typeIndex, mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []any{attest, arm, amd}}))
	l.tag("multi", index)
	r := newRegistry(t, c.wrap)
	r.push(l, index, "multi:1")
	s := newStore(t)
	for platform, want := range map[string]string{"linux/amd64": amdConfig, "linux/arm64": armConfig, "linux/arm64/v8": armConfig} {
		if got, err := pulled(t, s, r.host+"/multi:1", platform); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", platform, got, err, want)
		}
	}
	if got, err := pulled(t, s, r.host+"/multi@"+index["digest"].(string), "linux/amd64"); err != nil || got != amdConfig {
		t.Errorf("by the index's digest: %s, %v", got, err)
	}
	_, err := pulled(t, s, r.host+"/multi:1", "linux/riscv64")
	var e *say.Error
	if !errors.As(err, &e) || !strings.Contains(strings.Join(e.Hints, ""), "linux/amd64") || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("a platform that is not there: %v", err)
	}
	// The layers of both were fetched once, although each was asked for twice.
	if n := c.gets(layerOf(amd, l)); n != 1 {
		t.Errorf("a layer was fetched %d times", n)
	}
}

func TestTagMoved(t *testing.T) {
	l, c := newLayout(t), &counter{}
	one, first := l.image("amd64", gzipLayer(small(t, "a", "1")))
	two, second := l.image("amd64", gzipLayer(small(t, "a", "2")))
	l.tag("one", one)
	l.tag("two", two)
	r := newRegistry(t, c.wrap)
	s := newStore(t)
	for n, step := range []struct {
		push map[string]any
		want string
	}{{one, first}, {nil, first}, {two, second}, {one, first}} {
		if step.push != nil {
			r.push(l, step.push, "moving:tag")
		}
		got, err := pulled(t, s, r.host+"/moving:tag", "linux/amd64")
		if err != nil || got != step.want {
			t.Fatalf("pull %d: %s, %v; want %s", n+1, got, err, step.want)
		}
		rec, name, err := s.find(r.host+"/moving:tag", "linux/amd64")
		if err != nil || rec.Digest != step.want || name != r.host+"/moving:tag" {
			t.Errorf("after pull %d the name stands for %s, %v", n+1, rec.Digest, err)
		}
	}
	if n := c.gets(layerOf(one, l)); n != 1 {
		t.Errorf("the first image's layer was fetched %d times", n)
	}
	if n := c.gets("manifests/tag"); n < 4 {
		t.Errorf("the registry was asked %d times in 4 pulls", n)
	}
	// By digest, by the manifest's digest, and by the first digits of either.
	for _, arg := range []string{first, first[:20], one["digest"].(string), one["digest"].(string)[:19]} {
		if rec, _, err := s.find(arg, "linux/amd64"); err != nil || rec.Digest != first {
			t.Errorf("find %s: %s, %v", arg, rec.Digest, err)
		}
	}
}

// refusal is something that is wrong with an image in a registry.
type refusal struct {
	what  string
	image func(l *testLayout) map[string]any
	serve func(c *counter, layer string)
	want  string
}

func refusals(t *testing.T, content []byte) []refusal {
	return []refusal{
		{"a layer with other bytes", nil, func(c *counter, layer string) {
			c.onGet(layer, func(w http.ResponseWriter, _ *http.Request) { w.Write(gzipLayer(small(t, "a", "evil")).packed) })
		}, "verifying sha256"},
		{"a layer with a changed byte", nil, func(c *counter, layer string) {
			b := bytes.Clone(gzipLayer(content).packed)
			b[len(b)/2] ^= 1
			c.onGet(layer, func(w http.ResponseWriter, _ *http.Request) { w.Write(b) })
		}, "verifying sha256"},
		{"a layer cut short", nil, func(c *counter, layer string) {
			b := gzipLayer(content).packed
			c.onGet(layer, func(w http.ResponseWriter, _ *http.Request) { w.Write(b[:len(b)/2]) })
		}, "verifying sha256"},
		{"a layer whose transfer breaks off", nil, func(c *counter, layer string) {
			b := gzipLayer(content).packed
			c.onGet(layer, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", fmt.Sprint(len(b)))
				w.Write(b[:len(b)/2])
			})
		}, "EOF"},
		{"a layer that goes on", nil, func(c *counter, layer string) {
			b := gzipLayer(content).packed
			c.onGet(layer, func(w http.ResponseWriter, _ *http.Request) { w.Write(append(b, make([]byte, 1<<20)...)) })
		}, "corrupt"},
		{"a layer that is not there", nil, func(c *counter, layer string) {
			c.onGet(layer, http.NotFound)
		}, "404"},
		{"a layer of another content than the configuration says", func(l *testLayout) map[string]any {
			lie := gzipLayer(content)
			lie.content = []byte("something else")
			d, _ := l.image("amd64", lie)
			return d
		}, nil, "corrupt"},
		{"another architecture", func(l *testLayout) map[string]any {
			d, _ := l.image("s390x", gzipLayer(content))
			return d
		}, nil, "s390x"},
		{"a manifest that is an index as well", func(l *testLayout) map[string]any {
			return l.blob(typeManifest, mustJSON(t, map[string]any{"schemaVersion": 2, "mediaType": typeManifest, "manifests": []any{}, "layers": []any{}, "config": l.blob(typeConfig, []byte("{}"))}))
		}, nil, "neither"},
		{"a manifest that calls itself an index", func(l *testLayout) map[string]any {
			d, _ := l.image("amd64", gzipLayer(content))
			b, _ := os.ReadFile(l.blobFile(d["digest"].(string)))
			return l.blob(typeManifest, bytes.Replace(b, []byte(typeManifest), []byte(typeIndex), 1))
		}, nil, "something else"},
		{"something that is no image", func(l *testLayout) map[string]any {
			return l.blob(typeManifest, mustJSON(t, map[string]any{"schemaVersion": 2, "config": l.blob("application/vnd.cncf.helm.config.v1+json", []byte("{}")), "layers": []any{}}))
		}, nil, "no image"},
		{"too few layers", func(l *testLayout) map[string]any {
			config := l.blob(typeConfig, []byte(`{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":["a","b"]}}`))
			g := gzipLayer(content)
			return l.blob(typeManifest, mustJSON(t, map[string]any{"schemaVersion": 2, "config": config, "layers": []any{l.blob(g.mediaType, g.packed)}}))
		}, nil, "names 2"},
		{"too many layers", func(l *testLayout) map[string]any {
			g := gzipLayer(small(t, "x", "y"))
			list := make([]testLayer, 257)
			for n := range list {
				list[n] = g
			}
			d, _ := l.image("amd64", list...)
			return d
		}, nil, "256"},
		{"a layer that leads out", func(l *testLayout) map[string]any {
			d, _ := l.image("amd64", gzipLayer(small(t, "../../x", "y")))
			return d
		}, nil, ".."},
	}
}

// TestRefusals: what can be wrong with an image, each beside the same image
// without it. Nothing may be left of any.
func TestRefusals(t *testing.T) {
	content := small(t, "a", strings.Repeat("content", 1000))
	for _, bad := range refusals(t, content) {
		t.Run(bad.what, func(t *testing.T) {
			l, c := newLayout(t), &counter{}
			good, config := l.image("amd64", gzipLayer(content))
			l.tag("good", good)
			r := newRegistry(t, c.wrap)
			r.push(l, good, "image:good")
			tag := "good"
			if bad.image != nil {
				d := bad.image(l)
				l.tag("bad", d)
				pushRaw(t, r, l, d, "image", "bad")
				tag = "bad"
			}
			s := newStore(t)
			if bad.serve != nil {
				bad.serve(c, layerOf(good, l))
			}
			_, err := pulled(t, s, r.host+"/image:"+tag, "linux/amd64")
			if err == nil || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%v, want an error with %q", err, bad.want)
			}
			s.mustBeEmpty(t, "blobs") // whole layers are for the next pull
			c.calm()
			if digest, err := pulled(t, s, r.host+"/image:good", "linux/amd64"); err != nil || digest != config {
				t.Errorf("the control: %s, %v", digest, err)
			}
			s.mustBeEmpty(t, "images refs")
		})
	}
}

// pushRaw puts things into the registry that no client would.
func pushRaw(t *testing.T, r *testReg, l *testLayout, d map[string]any, repo, tag string) {
	t.Helper()
	blobs, err := os.ReadDir(filepath.Join(l.dir, "blobs/sha256"))
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path, mediaType string, body []byte) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+r.host+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", mediaType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode >= 300 {
			t.Fatalf("%s %s: %v, %v", method, path, resp, err)
		}
		resp.Body.Close()
	}
	for _, b := range blobs {
		content, err := os.ReadFile(filepath.Join(l.dir, "blobs/sha256", b.Name()))
		if err != nil {
			t.Fatal(err)
		}
		send("POST", "/v2/"+repo+"/blobs/uploads/?digest=sha256:"+b.Name(), "application/octet-stream", content)
		if "sha256:"+b.Name() == d["digest"] {
			send("PUT", "/v2/"+repo+"/manifests/"+tag, d["mediaType"].(string), content)
		}
	}
}

func TestNoSuchTag(t *testing.T) {
	l := newLayout(t)
	d, _ := l.image("amd64", gzipLayer(small(t, "a", "1")))
	l.tag("x", d)
	r := newRegistry(t, nil)
	r.push(l, d, "image:there")
	s := newStore(t)
	if _, err := pulled(t, s, r.host+"/image:there", "linux/amd64"); err != nil {
		t.Errorf("the control: %v", err)
	}
	if _, err := pulled(t, s, r.host+"/image:other", "linux/amd64"); err == nil || !strings.Contains(err.Error(), "has no other") {
		t.Errorf("an unknown tag: %v", err)
	}
	r.server.Close()
	if _, err := pulled(t, s, r.host+"/image:there", "linux/amd64"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("no registry: %v", err)
	}
}
