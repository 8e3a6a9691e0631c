// Package manifest is sandbox.toml: everything a sandbox is, in one file.
//
// sb-run writes it to the run directory and passes it to every tool with
// --manifest; each tool reads its own table and the shared ones ([network],
// [rules]). It holds no secret. Reading is strict: an unknown key, a wrong type
// or a value out of bounds is an error that names the file, the line and the key.
package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"sb/lib/binding"

	"github.com/BurntSushi/toml"
)

// Manifest is the whole file.
type Manifest struct {
	Name    string  `toml:"name"` // of the sandbox: [a-z0-9][a-z0-9_-]{0,62}
	Network Network `toml:"network"`
	Rules   Rules   `toml:"rules"`
	DNS     DNS     `toml:"dns"`
	Machine Machine `toml:"machine"`
	Shares  []Share `toml:"share,omitempty"`
	Run     Run     `toml:"run"`

	// Credentials are what sb-broker puts into requests. Their placeholders are in
	// here, and no secret.
	Credentials []binding.Binding `toml:"credential,omitempty"`

	// Digest is the SHA-256 of the file as it was read, in hex: a part that is
	// started again must be given the same one.
	Digest string `toml:"-"`
}

// Rules are texts in the grammar of package rule.
type Rules struct {
	Allow []string `toml:"allow"`
	Deny  []string `toml:"deny"`
}

// DNS says how sb-dns answers.
type DNS struct {
	// Denied is the answer for a name that no rule allows: "nxdomain" (the
	// default; every client fails at once) or "refused".
	Denied string `toml:"denied,omitempty"`
}

// Machine is what sb-vm boots.
type Machine struct {
	CPUs    int    `toml:"cpus,omitempty"`    // default 2
	Memory  Size   `toml:"memory,omitempty"`  // bytes; default 2 GiB
	Accel   string `toml:"accel,omitempty"`   // auto (the default), kvm, tcg; on macOS only auto
	Kernel  string `toml:"kernel"`            // a kernel directory of sb-image
	Base    string `toml:"base"`              // the image's read-only file system
	Disk    string `toml:"disk"`              // the writable disk; empty: sb-run makes one for the run
	Kept    string `toml:"kept,omitempty"`    // a second one, for the shares' private directories; empty: they lie on the first
	Cold    bool   `toml:"cold,omitempty"`    // boot it, do not restore it from memory
	Console string `toml:"console,omitempty"` // where the console's last bytes are kept; empty: nowhere

	DiskSize Size `toml:"disk_size,omitempty"` // of the disk that sb-run makes, bytes; default 16 GiB
}

// Run is the command that sb-run attach starts in the guest.
type Run struct {
	Command  []string          `toml:"command,omitempty"`
	Env      map[string]string `toml:"env,omitempty"`
	User     string            `toml:"user,omitempty"`      // name or uid[:gid] in the guest; default root
	MakeUser string            `toml:"make_user,omitempty"` // the name that user, a number, gets where nobody has it; he may use sudo
	Workdir  string            `toml:"workdir,omitempty"`   // absolute path in the guest; default /
	Links    map[string]string `toml:"links,omitempty"`     // targets by path in the guest: made where there is nothing
	Files    []File            `toml:"file,omitempty"`
	Startup  []Startup         `toml:"startup,omitempty"`
	State    string            `toml:"state,omitempty"` // the profile whose state this has; empty: none is kept
	Clone    *Clone            `toml:"clone,omitempty"`
}

// Clone is a clone that the guest makes of a repository, before its command. Only the
// share of Source says which one that is on the host.
type Clone struct {
	Source string `toml:"source"`           // where the guest sees it: a git directory, or with Copy a tree
	Dir    string `toml:"dir"`              // the clone's own place in the guest
	Copy   bool   `toml:"copy,omitempty"`   // it has no commit: the tree is copied
	Branch string `toml:"branch,omitempty"` // what is checked out; empty: Commit
	Commit string `toml:"commit,omitempty"` // that of the branch, or what is checked out without one
	Format string `toml:"format"`           // of its objects: sha1 or sha256
	Origin string `toml:"origin,omitempty"` // the address of its remote
	Name   string `toml:"name,omitempty"`   // user.name of the repository itself
	Email  string `toml:"email,omitempty"`  // user.email

	Instructions Instructions `toml:"instructions,omitempty"`
}

// Instructions are a file for the agent, written into a clone that has none by its name.
type Instructions struct {
	File string `toml:"file"` // a path within the clone
	Text string `toml:"text"`
}

// MaxInstructions is what instructions have at most: bytes. They go to the guest as a
// variable of a command.
const MaxInstructions = 32 << 10

// Check says what of them cannot be.
func (i Instructions) Check() error {
	switch low := strings.ToLower(i.File); {
	case i.File == "" && i.Text == "":
		return nil
	case i.File == "" || i.Text == "":
		return errors.New("both file and text are to be set")
	case !fs.ValidPath(i.File) || i.File == "." || strings.ContainsAny(i.File, "\n\x00*?[\\!#") || strings.HasPrefix(i.File, "-") || low == ".git" || strings.HasPrefix(low, ".git/"):
		return fmt.Errorf("file: %q is no path of a file within a repository, such as AGENTS.md", i.File)
	case len(i.Text) > MaxInstructions:
		return fmt.Errorf("text: it has %d bytes, at most %d", len(i.Text), MaxInstructions)
	}
	return nil
}

func (c *Clone) check() error {
	switch {
	case !cleanAbs(c.Source) || !cleanAbs(c.Dir) || c.Dir == "/":
		return errors.New("source and dir must be absolute paths, and dir none of the root")
	case GuestsOwn(c.Dir) != "":
		return fmt.Errorf("%s is the guest's own", c.Dir)
	case c.Format != "sha1" && c.Format != "sha256":
		return fmt.Errorf("format: %q is neither sha1 nor sha256", c.Format)
	case c.Branch == "" && c.Commit == "" && !c.Copy:
		return errors.New("neither a branch nor a commit is named")
	case strings.HasPrefix(c.Branch, "-") || strings.Trim(c.Commit, "0123456789abcdef") != "":
		return errors.New("the branch or the commit is none")
	}
	return c.Instructions.Check()
}

// The bounds of a machine: below MinMemory the guest's kernel and base system
// do not boot; MaxCPUs is what one q35 machine of QEMU takes without options.
const (
	DefaultCPUs   = 2
	MaxCPUs       = 64
	DefaultMemory = 2 << 30
	DefaultDisk   = 16 << 30
	MinMemory     = 192 << 20
	MaxDisk       = 1 << 40 // what sb-image makes
	maxFile       = 4 << 20
)

// Load reads the manifest at path.
func Load(path string) (*Manifest, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the manifest %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("read the manifest %s: larger than %d bytes", path, maxFile)
	}
	return Parse(path, text)
}

// Parse reads a manifest from text; file is its name in errors.
func Parse(file string, text []byte) (*Manifest, error) {
	var m Manifest
	if err := Decode(file, text, &m); err != nil {
		return nil, err
	}
	m.defaults()
	if key, err := m.check(); err != nil {
		return nil, fmt.Errorf("%s:%d: %s: %w", file, line(text, strings.Split(key, ".")), key, err)
	}
	sum := sha256.Sum256(text)
	m.Digest = hex.EncodeToString(sum[:])
	return &m, nil
}

// Encode writes m as the file that Parse reads back to the same.
func (m *Manifest) Encode() ([]byte, error) {
	var b bytes.Buffer
	enc := toml.NewEncoder(&b)
	enc.Indent = ""
	if err := enc.Encode(m); err != nil {
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	return b.Bytes(), nil
}

func (m *Manifest) defaults() {
	def(&m.Name, "sandbox")
	def(&m.Network.Pool, netip.MustParsePrefix(DefaultPool))
	def(&m.Network.MTU, DefaultMTU)
	def(&m.DNS.Denied, "nxdomain")
	def(&m.Machine.CPUs, DefaultCPUs)
	def(&m.Machine.Memory, DefaultMemory)
	def(&m.Machine.DiskSize, DefaultDisk)
	def(&m.Machine.Accel, "auto")
	def(&m.Run.User, "root")
	def(&m.Run.Workdir, "/")
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check returns the first key whose value is out of bounds, and why.
func (m *Manifest) check() (key string, err error) {
	if !ValidName(m.Name) {
		return "name", fmt.Errorf("%q is no name: lower-case letters, digits, - and _, at most 63", m.Name)
	}
	if key, err := m.Network.check(); err != nil {
		return key, err
	}
	if m.DNS.Denied != "nxdomain" && m.DNS.Denied != "refused" {
		return "dns.denied", fmt.Errorf("%q is neither nxdomain nor refused", m.DNS.Denied)
	}
	if m.Machine.CPUs < 1 || m.Machine.CPUs > MaxCPUs {
		return "machine.cpus", fmt.Errorf("%d is not between 1 and %d", m.Machine.CPUs, MaxCPUs)
	}
	if m.Machine.Memory < MinMemory {
		return "machine.memory", fmt.Errorf("%s is less than the %s that a machine needs to boot", m.Machine.Memory, Size(MinMemory))
	}
	switch m.Machine.Accel {
	case "auto", "kvm", "tcg":
	default:
		return "machine.accel", fmt.Errorf("%q is none of auto, kvm, tcg", m.Machine.Accel)
	}
	for i, s := range m.Shares {
		if !filepath.IsAbs(s.Host) || !cleanAbs(s.Guest) || s.Guest == "/" {
			return "share", fmt.Errorf("share %d: host and guest must be absolute paths, and guest none of the root", i+1)
		}
		if own := GuestsOwn(s.Guest); own != "" {
			return "share", fmt.Errorf("share %d: %s is the guest's own", i+1, own)
		}
		if err := s.check(); err != nil {
			return "share", fmt.Errorf("share %d: %w", i+1, err)
		}
	}
	for i := range m.Credentials {
		if err := m.Credentials[i].Check(); err != nil {
			return "credential", fmt.Errorf("credential %d: %w", i+1, err)
		}
	}
	for path := range m.Run.Links {
		if !cleanAbs(path) {
			return "run.links", fmt.Errorf("%q is not an absolute path", path)
		}
	}
	if key, err := m.Run.checkProvision(); err != nil {
		return key, err
	}
	if m.Run.Clone != nil {
		if err := m.Run.Clone.check(); err != nil {
			return "run.clone", err
		}
	}
	if !cleanAbs(m.Run.Workdir) {
		return "run.workdir", fmt.Errorf("%q is not an absolute path", m.Run.Workdir)
	}
	return "", nil
}

// GuestsOwn returns which of the file systems that the guest's kernel fills a
// path lies in, "" if in none: nothing can be mounted there.
func GuestsOwn(path string) string {
	for _, own := range []string{"/proc", "/sys", "/dev"} {
		if path == own || strings.HasPrefix(path, own+"/") {
			return own
		}
	}
	return ""
}

func cleanAbs(p string) bool { return strings.HasPrefix(p, "/") && filepath.Clean(p) == p }

// ValidName reports whether s can name a sandbox.
func ValidName(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[0] == '_' {
		return false
	}
	for _, c := range []byte(s) {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}
