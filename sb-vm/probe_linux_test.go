package main

import (
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

func openKVM(t *testing.T) uintptr {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skipf("SKIP: the probe's guest is made of amd64's instructions")
	}
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIP: the probe of KVM cannot be tested on this host: %v", err)
	}
	t.Cleanup(func() { kvm.Close() })
	return kvm.Fd()
}

func runProbe(t *testing.T, kvm uintptr, loops uint32) (time.Duration, error) {
	t.Helper()
	p, err := newProbe(kvm, loops)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	start := time.Now()
	err = p.run()
	return time.Since(start), err
}

// A guest that has little to do comes to its end; one that has too much is
// stopped at the deadline, wherever it runs. The loop that decides is done in
// time or it is not: the verdict is that and nothing else.
func TestProbe(t *testing.T) {
	kvm := openKVM(t)
	if took, err := runProbe(t, kvm, 1); err != nil {
		t.Errorf("a loop of 1: %v after %v", err, took)
	}
	// It counts from 0 through all of 32 bits: seconds on any processor.
	for _, loops := range []uint32{0, probeLoops} {
		took, err := runProbe(t, kvm, loops)
		slow := err != nil && strings.Contains(err.Error(), "too slowly")
		switch {
		case err != nil && !slow:
			t.Errorf("a loop of %d: %v", loops, err)
		case slow && took < probeTime, !slow && took > 2*probeTime:
			t.Errorf("a loop of %d: %v after %v, of %v", loops, err, took, probeTime)
		case loops == 0 && !slow:
			t.Errorf("the longest loop was done in %v", took)
		case took > 10*probeTime:
			t.Errorf("a loop of %d: it took %v to stop it at %v", loops, took, probeTime)
		}
		t.Logf("a loop of %d: %v after %v", loops, err, took)
	}
}

func TestChooseAccel(t *testing.T) {
	if accel, err := chooseAccel("tcg"); accel != "tcg" || err != nil {
		t.Errorf("tcg: %s, %v", accel, err)
	}
	works := probeKVM() == nil
	accel, err := chooseAccel("kvm")
	if works != (accel == "kvm" && err == nil) || !works && !strings.Contains(hints(err), "--accel tcg") {
		t.Errorf("kvm, which works: %v: %s, %v", works, accel, err)
	}
	want := map[bool]string{true: "kvm", false: "tcg"}[works]
	if accel, err := chooseAccel("auto"); accel != want || err != nil {
		t.Errorf("auto: %s, %v; want %s", accel, err, want)
	}
}
