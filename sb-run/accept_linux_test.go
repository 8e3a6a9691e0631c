package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sb/lib/manifest"
	"sb/sb-run/undo"

	"golang.org/x/sys/unix"
)

// TestOffersRace: of two sandboxes that end together the file of one is kept, whole,
// and who looks meanwhile sees one of them.
func TestOffersRace(t *testing.T) {
	t.Setenv("SB_HOME", filepath.Join(t.TempDir(), "sb"))
	host := t.TempDir()
	entry := manifest.ShadowName(".git/config")
	var shares []manifest.Share
	wrote := map[string]bool{"": true}
	for i, size := range []int{30_000, 20_000, 10} {
		text := strings.Repeat(fmt.Sprint(i), size)
		wrote[text] = true
		s := manifest.Share{Host: host, Shadow: t.TempDir()}
		if err := os.WriteFile(filepath.Join(s.Shadow, entry), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		shares = append(shares, s)
	}
	dir, err := workspaceDir(host)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "files", entry)
	var all sync.WaitGroup
	for _, s := range shares {
		all.Go(func() {
			for range 200 {
				if _, err := keepShadow(s); err != nil {
					t.Error(err)
					return
				}
				if text, _ := os.ReadFile(file); !wrote[string(text)] {
					t.Errorf("it is neither's: %d bytes, %.20q…", len(text), text)
					return
				}
			}
		})
	}
	all.Wait()
	if text, err := os.ReadFile(file); err != nil || !wrote[string(text)] {
		t.Errorf("kept: %d bytes, %v", len(text), err)
	}
}

// TestAcceptOnlyShown: what a sandbox writes between the question and the answer is
// neither taken nor forgotten, and what was shown is taken if nothing came between.
func TestAcceptOnlyShown(t *testing.T) {
	t.Setenv("SB_HOME", filepath.Join(t.TempDir(), "sb"))
	host := t.TempDir()
	os.Mkdir(filepath.Join(host, ".git"), 0o755)
	dir, err := workspaceDir(host)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		s := manifest.Share{Host: host, Shadow: t.TempDir()}
		if err := os.WriteFile(filepath.Join(s.Shadow, manifest.ShadowName(".git/config")), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keepShadow(s); err != nil {
			t.Fatal(err)
		}
	}
	offers := func() []offer {
		t.Helper()
		all, err := pending(host, dir)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	write("shown\n")
	shown := offers()
	write("not shown\n")
	if held, err := holdOffers(host, dir, shown); err == nil {
		held.Close()
		t.Error("what was not shown would be taken")
	}
	if now := offers(); len(now) != 1 || string(now[0].text) != "not shown\n" {
		t.Errorf("offered: %d", len(now))
	}
	shown = offers()
	held, err := holdOffers(host, dir, shown)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := takeOffers(host, dir, shown); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(host, ".git/config")); string(text) != "not shown\n" || len(offers()) != 0 {
		t.Errorf("taken: %q", text)
	}
}

// TestMadeGuarded: whatever name a file has while it is made in a workspace, on its way
// to one that a guest cannot change, the guest cannot change it there.
func TestMadeGuarded(t *testing.T) {
	host := t.TempDir()
	names := watchNames(t, host, func() {
		f := offer{offered: offered{path: "config", text: []byte("new"), mode: 0o644}}
		if err := f.take(host); err != nil {
			t.Fatal(err)
		}
	})
	t.Setenv("SB_HOME", filepath.Join(t.TempDir(), "sb"))
	s, err := undo.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	record := func() *undo.Record {
		t.Helper()
		r, err := s.Record(t.Context(), host, "x", undo.Rules{Largest: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	before := record()
	os.Remove(filepath.Join(host, "config"))
	now := record()
	names = append(names, watchNames(t, host, func() {
		if _, err := s.Restore(t.Context(), undo.MakePlan(before, now, nil, true)); err != nil {
			t.Fatal(err)
		}
	})...)
	if n := len(names); n < 4 || !slices.Contains(names, "config") {
		t.Fatalf("seen: %q", names)
	}
	share := manifest.Share{Host: host}
	guardPaths(&share)
	for _, name := range names {
		if name != "config" && !slices.ContainsFunc(share.Protected, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			t.Errorf("a guest can change %s", name)
		}
	}
}

// watchNames are the names that files had in a directory while do ran.
func watchNames(t *testing.T, dir string, do func()) (names []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	do()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Fatal(err)
	}
	for buf = buf[:n]; len(buf) > 0; {
		size := unix.SizeofInotifyEvent + int(buf[12]) // struct inotify_event's len; names are short
		names = append(names, strings.TrimRight(string(buf[unix.SizeofInotifyEvent:size]), "\x00"))
		buf = buf[size:]
	}
	return names
}
