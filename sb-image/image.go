package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"sb/lib/say"
	"sb/sb-image/decompress"
	"sb/sb-image/erofs"
	"sb/sb-image/flatten"
)

// source is an image as a transport found it: not yet fetched, but for what
// says what it is.
type source struct {
	manifest string // the digest of its manifest, "" where it has none
	config   []byte // its configuration, nil where it has none
	layers   []layer
	run      runConfig  // for the configuration of an image that has none
	making   *bootstrap // if the image is made here, not fetched
	coming   *prefetch  // if its layers come over the network
	file     io.Closer  // what the layers are read from
}

func (src *source) close() {
	if src.file != nil {
		src.file.Close()
	}
	if src.coming != nil {
		src.coming.close()
	}
}

// layer is one layer on its way.
type layer struct {
	name    string // for people
	digest  string // of the bytes that open gives, "" if nobody knows
	size    int64  // of the same, -1 if nobody knows
	counted bool   // the progress counts it where it is fetched
	open    func(context.Context) (io.ReadCloser, error)
}

// digest is the name of the image in the store: that of its configuration,
// which names the content of each layer. So it is one image whichever registry,
// archive or compression it came by. Docker calls it the image's id.
func (src *source) digest() string {
	if src.config == nil {
		return ""
	}
	return digestOf(src.config)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// imageConfig is what is read of an image's configuration (OCI image
// specification, config.md).
type imageConfig struct {
	Created      *time.Time `json:"created,omitempty"`
	Architecture string     `json:"architecture"`
	Variant      string     `json:"variant,omitempty"`
	OS           string     `json:"os"`
	Config       runConfig  `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// runConfig is how an image wants to be run.
type runConfig struct {
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
}

// limit bounds a layer. Real layers shrink to a tenth at best; one of nothing
// but zeros to a thousandth.
func limit() decompress.Limit { return decompress.Limit{Bytes: 64 << 30, Ratio: 200, Free: 1 << 30} }

// record is images/HEX.json.
type record struct {
	Digest   string     `json:"digest"`
	Manifest string     `json:"manifest,omitempty"`
	Platform string     `json:"platform"`
	Created  *time.Time `json:"created,omitempty"`
	Config   runConfig  `json:"config"`
}

// build flattens the image into out and puts that into the store. Until a
// reference stands for it, the lock on out keeps it from gc.
func (s *store) build(ctx context.Context, src *source, out *temp, platform, name string) (digest string, err error) {
	fetching, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		// The layers are of no use any more, unless it was that one did not come.
		if src.coming != nil && ctx.Err() == nil && !errors.Is(err, errFetch) {
			src.coming.drop()
		}
	}()
	p := newProgress(name, src.layers)
	if src.coming != nil {
		src.coming.start(fetching, p)
	}
	ids, err := s.flattenInto(ctx, src, out.File, p)
	p.end()
	if err != nil {
		return "", err
	}
	conf, err := src.finish(ids, platform)
	if err != nil {
		return "", err
	}
	digest = src.digest()
	if _, err := s.image(digest); err == nil { // made from what another name stood for
		return digest, nil
	}
	return digest, s.add(out, record{digest, src.manifest, conf.platform(), conf.Created, conf.Config})
}

// add puts the finished file system of an image into the store, and its record behind it.
func (s *store) add(out *temp, rec record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if err := out.Chmod(0o400); err != nil {
		return err
	}
	if err := out.publish(s.imageFile(rec.Digest, "erofs")); err != nil {
		return err
	}
	return s.write(s.imageFile(rec.Digest, "json"), text)
}

// finish checks that the layers were those that the configuration names. An
// image without one gets one that says no more than what is known.
func (src *source) finish(ids []string, platform string) (imageConfig, error) {
	if src.config == nil {
		var conf imageConfig
		conf.OS, conf.Architecture, _ = strings.Cut(platform, "/")
		conf.RootFS.Type, conf.RootFS.DiffIDs, conf.Config = "layers", ids, src.run
		text, err := json.Marshal(conf)
		src.config = text
		return conf, err
	}
	conf, err := parseConfig(src.config)
	if err != nil {
		return conf, err
	}
	for n, id := range conf.RootFS.DiffIDs {
		if id != ids[n] {
			return conf, fmt.Errorf("layer %d of %d unpacks to %s, and the image's configuration says %s: it is corrupt", n+1, len(ids), ids[n], id)
		}
	}
	return conf, nil
}

func parseConfig(text []byte) (conf imageConfig, err error) {
	if err := json.Unmarshal(text, &conf); err != nil {
		return conf, fmt.Errorf("read the image's configuration: %w", err)
	}
	if len(conf.RootFS.DiffIDs) > flatten.MaxLayers {
		return conf, fmt.Errorf("the image has %d layers, and %d is the limit", len(conf.RootFS.DiffIDs), flatten.MaxLayers)
	}
	return conf, nil
}

func (c imageConfig) platform() string {
	p := c.OS + "/" + c.Architecture
	if c.Variant != "" {
		p += "/" + c.Variant
	}
	return p
}

// flattenInto returns the digest of each layer's content as it came out.
func (s *store) flattenInto(ctx context.Context, src *source, image *os.File, p *progress) (ids []string, err error) {
	spool, err := s.temp("spool")
	if err != nil {
		return nil, err
	}
	defer spool.discard()
	m := flatten.New(erofs.NewWriter(image, spool.File))
	m.NeedEnd = src.config == nil
	if src.making != nil {
		m.Copy = src.making.watch
	}
	for n, l := range src.layers {
		id, err := l.flatten(ctx, m, p)
		if err != nil {
			return nil, fmt.Errorf("layer %d of %d, %s: %w", n+1, len(src.layers), l.name, err)
		}
		ids = append(ids, id)
	}
	if err := m.Finish(); err != nil {
		return nil, fmt.Errorf("write the file system: %w", err)
	}
	for name, n := range m.Dropped {
		say.Warn("left out the attribute %s of %d files", name, n)
	}
	return ids, nil
}

// flatten reads the layer once, to its last byte, and believes it only then.
func (l *layer) flatten(ctx context.Context, m *flatten.Image, p *progress) (string, error) {
	raw, err := l.open(ctx)
	if err != nil {
		return "", err
	}
	sum, content := sha256.New(), sha256.New()
	in := io.Reader(reader{ctx, raw})
	if !l.counted {
		in = p.reader(in)
	}
	if l.digest != "" {
		in = io.TeeReader(in, sum)
	}
	err = l.read(in, content, m)
	// A program that made the layer knows best why it is cut short.
	if closed := raw.Close(); closed != nil {
		return "", closed
	}
	is := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	switch wrong := l.digest != "" && l.digest != is; {
	case err != nil && wrong && ctx.Err() == nil:
		return "", fmt.Errorf("it is corrupt, or was cut short: %w", err)
	case err != nil:
		return "", err
	case wrong:
		return "", fmt.Errorf("it is corrupt: its digest is %s", is)
	}
	return "sha256:" + hex.EncodeToString(content.Sum(nil)), nil
}

// read lays the layer over the image. One with a digest is read to its end even when
// what it holds is wrong, so that the digest tells whether it came over wrong.
func (l *layer) read(in io.Reader, content io.Writer, m *flatten.Image) error {
	z, err := decompress.New(in, limit())
	if err == nil {
		defer z.Close()
		err = m.Layer(io.TeeReader(z, content))
	}
	if errors.Is(err, decompress.ErrTooLarge) {
		return err
	}
	switch {
	case l.digest == "" && err == nil:
		err = flatten.Drain(in)
	case l.digest != "":
		if _, drained := io.Copy(io.Discard, in); err == nil {
			err = drained
		}
	}
	return err
}
