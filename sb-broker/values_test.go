package main

import (
	"testing"

	"sb/lib/binding"
	"sb/lib/fd"
	"sb/lib/handover"
	"sb/lib/reason"
)

// A credential whose use cannot be said is not put in.
func TestE21Unsaid(t *testing.T) {
	near, far := pair(t, "secrets", fd.Stream)
	defer near.Close()
	gate, mine := pair(t, "broker", fd.Dgram)
	wire, err := handover.New(mine)
	if err != nil {
		t.Fatal(err)
	}
	defer wire.Close()
	sites, err := newSites([]binding.Binding{anthropic()})
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{b: &broker{wire: wire, keeper: newKeeper(far)}, site: sites[apiName]}
	for _, c := range []struct {
		before func()
		want   reason.Code
	}{{func() {}, ""}, {func() { gate.Close() }, reason.AuditUnavailable}} {
		c.before()
		go func() {
			near.Read(make([]byte, 64)) // an answer that comes before its question is one to none
			near.WriteString("value 8\n01234567")
		}()
		values, leave, no := f.fetch(request("GET", "/", nil), f.site.bindings)
		leave()
		if no.why != c.want || (len(values) == 0) != (c.want != "") {
			t.Errorf("%q, %v", no.why, values)
		}
	}
}

// TestE12Values: a value is looked for as long as a request that it is in, and the
// last two of each always.
func TestE12Values(t *testing.T) {
	sites, err := newSites([]binding.Binding{anthropic()})
	if err != nil {
		t.Fatal(err)
	}
	var v values
	texts := []string{"value-000", "value-001", "value-002", "value-003"}
	is := func(when string, want ...bool) {
		t.Helper()
		for i, text := range texts {
			if _, found := v.of(sites[apiName]).Replace(text); found != want[i] {
				t.Errorf("%s: %s is found: %v", when, text, found)
			}
		}
	}
	is("at first", false, false, false, false)
	var leave []func()
	for _, text := range texts {
		leave = append(leave, v.enter("anthropic", []byte(text)))
	}
	is("all are in use", true, true, true, true)
	again := v.enter("anthropic", []byte(texts[0]))
	leave[0]()
	leave[1]()
	is("the first is used again", true, false, true, true)
	again()
	leave[2]()
	leave[3]()
	is("none is in use", true, false, false, true)
}
