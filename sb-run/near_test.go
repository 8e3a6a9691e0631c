package main

import "testing"

func TestNearly(t *testing.T) {
	for _, c := range []struct {
		word, name string
		want       bool
	}{
		{"shel", "shell", true}, {"shelll", "shell", true}, {"sehll", "shell", true}, {"shall", "shell", true}, {"Shell", "shell", true},
		{"agent", "agents", true}, {"secrets", "secret", true}, {"claud", "claude", true},
		{"rust", "trust", false}, {"node", "undo", false}, {"php", "pi", false}, {"p", "pi", false}, {"shells2", "shell", false},
		{"sehlll", "shell", false}, {"img", "init", false}, {"python", "pi", false}, {"ubuntu", "undo", false}, {"", "pi", false},
	} {
		if got := nearly(c.word, c.name); got != c.want {
			t.Errorf("%s for %s: %v", c.word, c.name, got)
		}
	}
}

// TestMistyped: a slip in the name of a profile or a verb asks no registry for an
// image of that name; a word that is none does.
func TestMistyped(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.run("sehll").want(t, 125, "sehll is no profile and no verb: is shell meant?", "an image of that name is sehll:TAG")
	s.run("ps").want(t, 125, "ps is no verb of sb-run", "an image of that name is ps:TAG")
	s.run("whyy").want(t, 125, "is why meant?")
	s.run("agent", "ls").want(t, 125, "is sb-run agents ls meant?")
	s.run("img", "ls").want(t, 125, "put the command behind --: sb-run img -- ls")
	if asked := s.asked(); len(asked) > 0 {
		t.Errorf("asked: %q", asked)
	}
	s.run("img", "--", "true").want(t, 0)
	if asked := s.asked(); len(asked) == 0 {
		t.Error("control: no image was asked for")
	}
}

// TestVerbIsNoProfile: nobody writes a profile that sb-run would never run.
func TestVerbIsNoProfile(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.env = append(s.env, "EDITOR=true")
	s.run("agents", "edit", "why").want(t, 125, "why cannot be a profile")
	s.run("agents", "edit", "whys").want(t, 0)
	s.run("agents", "ls").want(t, 0, "!error")
}
