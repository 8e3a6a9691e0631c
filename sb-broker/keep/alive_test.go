package keep

import (
	"fmt"
	"os"
	"testing"
	"time"

	"sb/lib/ctl"
	"sb/lib/fd"
)

// TestAlive: a keeper that is busy reading a secret, however long, says that it is
// alive; only one that is stopped does not.
func TestAlive(t *testing.T) {
	k := testKeeper(t)
	once := t.TempDir() + "/once"
	k.source(t, "slow", []any{"cmd:sh", "-c", `test -e "$0" && exec sleep 60; touch "$0"; echo sesame88`, once})
	var w wires
	secrets, leash := pairOf(t), pairOf(t)
	control := pairOf(t)
	w.secrets, w.leash, w.ctl = secrets[1], leash[1], control[1]
	ready := pairOf(t)
	w.ready = ready[1]
	ended := make(chan error, 1)
	go func() { ended <- k.serve(w, []string{"slow"}) }()
	if _, err := ready[0].Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(secrets[0], "get slow\n") // which now hangs
	c, err := ctl.NewConn(control[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		began := time.Now()
		if err := c.Send(ctl.Message{{Key: "ask", Value: "alive"}}); err != nil {
			t.Fatal(err)
		}
		if m, _, err := c.Receive(); err != nil || m.Get("ok") != "alive" || time.Since(began) > time.Second {
			t.Errorf("%v, %v after %v", m, err, time.Since(began))
		}
	}
	leash[0].Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func pairOf(t *testing.T) (ends [2]*os.File) {
	a, b, err := fd.Pair("wire", fd.Stream)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return [2]*os.File{a, b}
}
