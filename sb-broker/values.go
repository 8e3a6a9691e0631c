package main

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strings"
	"sync"

	"sb/sb-broker/scrub"
)

// values are the secrets that were put into requests, as long as they may be sent
// back: those of requests that are being answered, and the last two of each, since
// one that was replaced is in use for a while.
type values struct {
	mu    sync.Mutex
	known map[string][]*value // by the secret's name, the last one first
	sets  map[*site]*scrub.Set
}

// value is a secret as it was at some time.
type value struct {
	text  []byte
	users int // requests that it is in
}

// enter remembers a secret that is about to be sent. What it returns is called when
// the request has been answered.
func (v *values) enter(secret string, text []byte) (leave func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := v.known[secret]
	at := slices.IndexFunc(all, func(o *value) bool { return bytes.Equal(o.text, text) })
	var now *value
	if at >= 0 {
		now = all[at]
		all = slices.Delete(all, at, at+1)
	} else {
		now = &value{text: bytes.Clone(text)}
		v.sets = map[*site]*scrub.Set{}
	}
	now.users++
	if v.known == nil {
		v.known = map[string][]*value{}
	}
	v.known[secret] = slices.Insert(all, 0, now)
	v.forget(secret)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		now.users--
		v.forget(secret)
	}
}

// forget lets go of what is neither used nor one of the last two.
func (v *values) forget(secret string) {
	all := v.known[secret]
	for i := len(all) - 1; i >= 2; i-- {
		if all[i].users == 0 {
			clear(all[i].text)
			all = slices.Delete(all, i, i+1)
			v.sets = map[*site]*scrub.Set{}
		}
	}
	v.known[secret] = all
}

// of is what to look for in what a site sends.
func (v *values) of(s *site) *scrub.Set {
	v.mu.Lock()
	defer v.mu.Unlock()
	if set := v.sets[s]; set != nil || v.known == nil {
		return set
	}
	var pairs []scrub.Pair
	for _, b := range s.bindings {
		for _, value := range v.known[b.Secret] {
			pairs = append(pairs, b.pairs(value.text)...)
		}
	}
	set := scrub.New(pairs)
	v.sets[s] = set
	return set
}

// pairs are a secret and, where that is another text, what a header says of it.
func (b *bound) pairs(secret []byte) []scrub.Pair {
	pairs := []scrub.Pair{{Secret: secret, Placeholder: []byte(b.Placeholder)}}
	if user, ok := strings.CutPrefix(b.Format, "Basic "); ok {
		written := func(password []byte) []byte {
			return base64.StdEncoding.AppendEncode(nil, append([]byte(user+":"), password...))
		}
		pairs = append(pairs, scrub.Pair{Secret: written(secret), Placeholder: written([]byte(b.Placeholder))})
	}
	return pairs
}
