package testscripts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// link is what may be linked into a tool.
type link struct {
	tool      string
	never     []string // packages
	calls     []string // of what socketCall tells apart, what its own code and lib's may do
	strangers []string // modules that are not ours; of ours there are lib and its own
}

const (
	pflag    = "github.com/spf13/pflag"
	toml     = "github.com/BurntSushi/toml"
	landlock = "github.com/landlock-lsm/go-landlock"
	psx      = "kernel.org/pub/linux/libs/security/libcap/psx" // landlock's
	xnet     = "golang.org/x/net"
	xsys     = "golang.org/x/sys"
	xtext    = "golang.org/x/text" // IDNA
	xterm    = "golang.org/x/term"
)

// unwanted is what would run what it is sent, or show its own memory.
var unwanted = []string{"net/rpc", "plugin", "encoding/gob", "net/http/cgi", "net/http/pprof", "golang.org/x/net/http2", "html/template", "text/template"}

// The kinds of calls that lead out of a process and its children. No tool listens.
const (
	dials    = "dials"
	listens  = "listens"
	resolves = "resolves"
)

// The keeper is a verb of sb-broker: for it, and for what it keeps secrets in,
// sb-broker may start programs and dial; the broker itself is kept from both by its
// confinement. crypto/tls in the gate is for the probe of ech.go alone: whether a
// server takes encrypted hellos stands in its encrypted answer, and a handshake of our
// own would be worse than Go's. It reads what an allowed server sends, never a byte of
// the guest's. What talks to registries for sb-image is a library.
var links = []link{
	{"sb-run", []string{"net/http", "crypto/tls", "golang.org/x/net/dns/dnsmessage"}, nil,
		[]string{pflag, toml, xnet, xsys, xtext, xterm, "github.com/hashicorp/yamux", "github.com/rogpeppe/go-internal"}},
	{"sb-vm", []string{"net/http", "crypto/tls", "golang.org/x/net/dns/dnsmessage"}, nil,
		[]string{pflag, toml, landlock, psx, xnet, xsys, xtext, "github.com/Code-Hex/vz/v3", "github.com/Code-Hex/go-infinity-channel", "golang.org/x/mod"}},
	{"sb-gate", []string{"net/http", "golang.org/x/net/dns/dnsmessage", "os/exec", "os/user"}, []string{dials},
		[]string{pflag, toml, landlock, psx, xnet, xsys, xtext, "gvisor.dev/gvisor", "github.com/google/btree", "golang.org/x/exp", "golang.org/x/time"}},
	{"sb-dns", []string{"net/http", "crypto/tls", "os/exec", "os/user"}, []string{dials, resolves},
		[]string{pflag, toml, landlock, psx, xnet, xsys, xtext}},
	{"sb-broker", nil, []string{dials, resolves},
		[]string{pflag, toml, landlock, psx, xnet, xsys, xtext, xterm, "filippo.io/age", "filippo.io/hpke", "golang.org/x/crypto",
			"github.com/zalando/go-keyring", "github.com/godbus/dbus/v5", "github.com/vektah/gqlparser/v2"}},
	{"sb-image", nil, nil,
		[]string{pflag, toml, xnet, xsys, xtext, "golang.org/x/sync", "github.com/google/go-containerregistry", "github.com/docker/cli",
			"github.com/docker/docker-credential-helpers", "github.com/opencontainers/go-digest", "github.com/opencontainers/image-spec",
			"github.com/sirupsen/logrus", "github.com/klauspost/compress", "github.com/pierrec/lz4/v4", "github.com/therootcompany/xz"}},
	{"sb-kit", []string{"net/http", "crypto/tls", "os/exec"}, nil, []string{pflag}},
	{"sb-policy", []string{"net/http", "crypto/tls", "os/exec"}, nil, []string{pflag, toml, xnet, xsys, xtext}},
}

// linkedPackage is a package of a tool.
type linkedPackage struct {
	path, module string
	files        []string
}

func linkedInto(t *testing.T, goos, tool string) (all []linkedPackage) {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", "-f", "{{.ImportPath}}\t{{with .Module}}{{.Path}}{{end}}\t{{.Dir}}\t{{join .GoFiles \" \"}} {{join .CgoFiles \" \"}}", "../"+tool)
	cgo := map[string]string{"linux": "0", "darwin": "1"}[goos] // as they are built
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED="+cgo)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for l := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(l, "\n"), "\t")
		p := linkedPackage{path: f[0], module: f[1]}
		for _, name := range strings.Fields(f[3]) {
			p.files = append(p.files, filepath.Join(f[2], name))
		}
		all = append(all, p)
	}
	return all
}

// TestLinked: what a tool must not do cannot be done with what is linked into it, and
// nothing is linked that nobody argued for, another tool's code neither; a tool that
// opens no socket calls nothing that opens one.
func TestLinked(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, l := range links {
			t.Run(goos+" "+l.tool, func(t *testing.T) {
				counted(t)
				done := map[string]bool{}
				for _, p := range linkedInto(t, goos, l.tool) {
					ours := p.module == "sb/lib" || p.module == "sb/"+l.tool
					switch {
					case slices.Contains(unwanted, p.path) || slices.Contains(l.never, p.path):
						t.Errorf("%s is linked", p.path)
					case p.module != "" && !ours && !slices.Contains(l.strangers, p.module):
						t.Errorf("%s is linked, which nobody argued for", p.path)
					case ours:
						for at, kind := range socketCalls(t, p.files) {
							if done[kind] = true; !slices.Contains(l.calls, kind) {
								t.Errorf("%s: it %s", at, kind)
							}
						}
					}
				}
				for _, kind := range l.calls { // the control of those that do not
					if !done[kind] {
						t.Errorf("it %s nowhere, as far as this test sees", kind)
					}
				}
			})
		}
	}
}

// socketCalls are the places where files make such a call, and its kind.
func socketCalls(t *testing.T, files []string) map[string]string {
	t.Helper()
	calls, set := map[string]string{}, token.NewFileSet()
	for _, name := range files {
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		imported := map[string]string{} // by the name that it has in the file
		for _, i := range f.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			as := path[strings.LastIndex(path, "/")+1:]
			if i.Name != nil {
				as = i.Name.Name
			}
			imported[as] = path
		}
		ast.Inspect(f, func(node ast.Node) bool {
			if s, ok := node.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok {
					if kind := socketCall(imported[x.Name], s.Sel.Name); kind != "" {
						calls[set.Position(s.Pos()).String()] = kind
					}
				}
			}
			return true
		})
	}
	return calls
}

// socketCall is what a function or type of a package is for, "" if for nothing of that.
func socketCall(path, name string) string {
	switch path {
	case "net":
		switch {
		case strings.HasPrefix(name, "Dial"):
			return dials
		case strings.HasPrefix(name, "Listen"):
			return listens
		case strings.HasPrefix(name, "Lookup"), strings.HasPrefix(name, "Resolve"), name == "DefaultResolver":
			return resolves
		}
	case "golang.org/x/sys/unix", "syscall":
		switch name {
		case "Socket", "Connect":
			return dials
		case "Bind", "Listen":
			return listens
		}
	}
	return ""
}

// TestGateTLS: the probe alone has TLS in the gate.
func TestGateTLS(t *testing.T) {
	counted(t)
	for _, p := range linkedInto(t, "linux", "sb-gate") {
		if !strings.HasPrefix(p.module, "sb/") {
			continue
		}
		for _, f := range p.files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if speaks := strings.Contains(string(text), "\"crypto/tls\"\n"); speaks != (filepath.Base(f) == "ech.go") {
				t.Errorf("%s: that it imports crypto/tls is %v", f, speaks)
			}
		}
	}
}
