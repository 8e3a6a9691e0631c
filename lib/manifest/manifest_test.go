package manifest

import (
	"reflect"
	"strings"
	"testing"
)

const full = `
name = "shell-1"

[network]
pool = "198.18.0.0/15"
mtu = 1500
ech = "auto"

[rules]
allow = ["example.com", "*.example.org:443"]
deny = ["bad.example.org"]

[machine]
cpus = 4
memory = "512m"
kernel = "/k"
base = "/b"
disk = "/d"

[[share]]
host = "/home/u/p"
guest = "/home/u/p"
read_only = false
uid = 1000
gid = 1000

[run]
command = ["sh", "-c", "echo \"hi\""]
workdir = "/home/u/p"
[run.env]
A = "b"
`

func TestRoundTrip(t *testing.T) {
	m, err := Parse("x.toml", []byte(full))
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("y.toml", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	m.Digest, again.Digest = "", ""
	if !reflect.DeepEqual(m, again) {
		t.Errorf("after a round trip %+v, want %+v", again, m)
	}
}

func TestDefaults(t *testing.T) {
	m, err := Parse("x.toml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if m.Network.Gateway().String() != "198.18.0.1" || m.Network.Guest().String() != "198.18.0.2" || m.Network.FirstHandle().String() != "198.18.1.0" {
		t.Errorf("gateway %s, guest %s, first handle %s", m.Network.Gateway(), m.Network.Guest(), m.Network.FirstHandle())
	}
	if m.Network.IsHandle(m.Network.Gateway()) || !m.Network.IsHandle(m.Network.FirstHandle()) {
		t.Error("the gateway is a handle, or the first handle is none")
	}
	if m.DNS.Denied != "nxdomain" || m.Machine.Memory != DefaultMemory || m.Run.User != "root" {
		t.Errorf("defaults: %+v", m)
	}
}

// Every fault names the file, the line and the key.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"nam = \"x\"", "f:1: unknown key nam"},
		{"[rules]\nallow = []\n\nalow = []", "f:4: unknown key rules.alow"},
		{"[machine]\ncpus = \"4\"", "f:2: machine.cpus: it is a string, and must be a number"},
		{"[rules]\nallow = \"a.example\"", "f:2: rules.allow: it is a string, and must be a list: [...]"},
		{"[machine]\ncold = [\"x\"]", "f:2: machine.cold: it is a list, and must be true or false"},
		{"[rules]\nallow = [1]", "f:2: rules.allow: it is a number, and must be a string"},
		{"name = 1.5", "f:1: name: it is a fraction, and must be a string"},
		{"[machine]\ncpus = 0\nmemory = \"64m\"", "f:3: machine.memory: 64m is less than the 192m"},
		{"[machine]\nmemory = \"2x\"", "f:2: machine.memory: "},
		{"[machine]\naccel = \"hvf\"", "f:2: machine.accel: "},
		{"[network]\npool = \"10.0.0.1/8\"", "f:2: network.pool: "},
		{"[network]\nmtu = 100", "f:2: network.mtu: "},
		{"[network]\nech = \"allow\"", "f:2: network.ech: \"allow\" is neither refuse nor auto"},
		{"[network]\nech = \"\"", "f:2: network.ech: "},
		{"[network]\nech = true", "f:2: network.ech: "},
		{"[dns]\ndenied = \"drop\"", "f:2: dns.denied: "},
		{"name = \"A b\"", "f:1: name: "},
		{"[[share]]\nhost = \"/a\"\nguest = \"/b\"\nreadonly = true", "f:4: unknown key share.readonly"},
		{"[[share]]\nhost = \"a\"\nguest = \"/b\"", "f:1: share: share 1: "},
		{"[[share]]\nhost = \"/a\"\nguest = \"/b/../..\"", "f:1: share: share 1: "},
		{"[run]\nworkdir = \"x\"", "f:2: run.workdir: "},
		{"name = \n", "f:1: name: "},
		{"name = 'a'\nname = 'b'", "f:2: "},
	} {
		_, err := Parse("f", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %s…", c.text, err, c.want)
		}
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]Size{"512m": 512 << 20, "2g": 2 << 30, "2G": 2 << 30, "2GiB": 2 << 30, "2gb": 2 << 30, "1000": 1000, "1k": 1024, "3b": 3} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "g", "0", "-1", "1.5g", "2x", "9999999999t"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", in, got)
		}
	}
}

// Whatever the text: it is refused with its file's name, or it is a manifest that
// is within its bounds and reads back as the same when it is written.
func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("[network]\nmtu = 65520\n[dns]\ndenied = \"refused\"")
	f.Add("[run]\nenv = {a = \"\\u0000\"}\ncommand = ['']")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse("f.toml", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.toml:") {
				t.Errorf("%q: the error does not begin with the file: %v", text, err)
			}
			return
		}
		if key, err := m.check(); err != nil || !ValidName(m.Name) {
			t.Fatalf("%q: %s: %v", text, key, err)
		}
		out, err := m.Encode()
		if err != nil {
			t.Fatalf("%q is not written: %v", text, err)
		}
		again, err := Parse("f.toml", out)
		if err != nil {
			t.Fatalf("%q was written as %q: %v", text, out, err)
		}
		twice, err := again.Encode()
		if err != nil || string(twice) != string(out) {
			t.Errorf("%q was written as %q and then as %q, %v", text, out, twice, err)
		}
	})
}
