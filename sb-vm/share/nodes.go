//go:build linux

package share

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"sb/sb-vm/share/fusewire"
)

// rootID is the guest's number for the root (FUSE_ROOT_ID).
const rootID = 1

// fileKey is which file a node is. The host uses inode numbers again, so the
// birth time belongs to it where the file system keeps one.
type fileKey struct {
	Inode
	born int64
}

// alias is a name under which the guest knows a node.
type alias struct {
	parent *node
	name   string
}

// node is a file that the guest holds a number for. Its fields are guarded by
// nodes.mu; id, key and typ never change.
type node struct {
	id  uint64
	key fileKey
	typ uint16 // the S_IFMT bits
	dev *device
	mnt uint64 // the mount it was met on

	lookups uint64           // how often the guest was given id and did not give it back
	names   []alias          // the one met last comes first
	kids    map[string]*node // known names in this directory
	handles []*handle        // open files; they serve a node that has no name any more

	told    bool  // the guest may hold attributes of this node
	stamp   stamp // those attributes, or the last ones told
	content stamp // the data the guest's cache may hold, ctime being 0
	listed  bool  // the guest may hold a listing of this directory

	watch       *watch // of a directory, nil without one
	unwatchable bool   // it was tried

	// Of a directory: changes of names in it under way for the guest, and how
	// many there were. While there are some, what is in it and what is known
	// here can differ.
	changing, changes int

	spelling spelling // of a directory
	kept     standing // what the rules said of names left out of names
	steps    progress // along the rules
	stepsGen uint64   // the generation of names it was computed for
}

func (n *node) isDir() bool { return n.typ == unix.S_IFDIR }

// nodes is the table of nodes.
type nodes struct {
	mu    sync.Mutex
	byID  map[uint64]*node
	byKey map[fileKey]*node
	root  *node
	last  uint64 // the id given last; none is used twice
	max   int
	// gen counts changes of the names of directories: what the rules say of
	// what lies below must be computed again.
	gen   uint64
	rules *rules
}

func newNodes(x *export, key fileKey, dev *device) *nodes {
	root := &node{id: rootID, key: key, typ: unix.S_IFDIR, dev: dev, mnt: x.rootStat.Mnt_id, lookups: 1, steps: x.rules.start()}
	return &nodes{
		byID:  map[uint64]*node{rootID: root},
		byKey: map[fileKey]*node{key: root},
		root:  root,
		last:  rootID,
		max:   x.limits.nodes,
		rules: &x.rules,
	}
}

// any is the node with the given id. An id that was never given, or was given
// back, is ESTALE.
func (t *nodes) any(id uint64) (*node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.byID[id]; n != nil {
		return n, nil
	}
	return nil, unix.ESTALE
}

// get is any, for a file that can be used: one of a pseudo file system only shows.
func (t *nodes) get(id uint64) (*node, error) {
	n, err := t.any(id)
	if err == nil && n.dev.pseudo {
		return nil, unix.EACCES
	}
	return n, err
}

// dir is the directory with the given id.
func (t *nodes) dir(id uint64) (*node, error) {
	n, err := t.get(id)
	if err == nil && !n.isDir() {
		return nil, unix.ENOTDIR
	}
	return n, err
}

// put is the node of a file, made if need be, and known as name in parent from
// now on (a nil parent: as nothing). The caller holds mu; the guest is given its
// number once more.
func (t *nodes) put(parent *node, name string, key fileKey, typ uint16, dev *device) (*node, error) {
	n := t.byKey[key]
	if n != nil && n.typ != typ {
		// The number was used again within a tick of the clock.
		t.detach(n)
		n = nil
	}
	if n == nil {
		if len(t.byID) >= t.max {
			return nil, unix.ENFILE
		}
		t.last++
		n = &node{id: t.last, key: key, typ: typ, dev: dev}
		t.byID[n.id] = n
		t.byKey[key] = n
	}
	n.lookups++
	if parent != nil {
		t.name(n, parent, name)
	}
	return n, nil
}

// detach makes a later put of the node's file another node.
func (t *nodes) detach(n *node) {
	if t.byKey[n.key] == n {
		delete(t.byKey, n.key)
	}
	for _, a := range slices.Clone(n.names) {
		t.unname(a)
	}
}

// maxNames is how many names of a file are remembered: it can have thousands.
const maxNames = 64

// name makes parent/name the first of n's names.
func (t *nodes) name(n *node, parent *node, name string) {
	if n == t.root {
		return
	}
	if len(n.names) > 0 && n.names[0].parent == parent && n.names[0].name == name {
		return
	}
	if old := parent.kids[name]; old == n {
		i := slices.Index(n.names, alias{parent, name})
		n.names[0], n.names[i] = n.names[i], n.names[0]
		return
	}
	t.unname(alias{parent, name})
	if len(n.names) >= maxNames {
		n.kept |= t.rules.standing(t.progress(n, 0))
		t.unname(n.names[maxNames-1])
	}
	if parent.kids == nil {
		parent.kids = map[string]*node{}
	}
	parent.kids[name] = n
	n.names = append(n.names, alias{parent, name})
	last := len(n.names) - 1
	n.names[0], n.names[last] = n.names[last], n.names[0]
	t.renamed(n)
}

// unname forgets that anything is known as a.
func (t *nodes) unname(a alias) {
	n := a.parent.kids[a.name]
	if n == nil {
		return
	}
	t.progress(n, 0) // what it falls back on without a name
	delete(a.parent.kids, a.name)
	n.names = slices.DeleteFunc(n.names, func(b alias) bool { return a == b })
	t.renamed(n)
	t.drop(n)
	t.drop(a.parent)
}

// renamed says that the names of n changed.
func (t *nodes) renamed(n *node) {
	n.stepsGen = 0
	if len(n.kids) > 0 {
		t.gen++
	}
}

// forget takes back count of the times the guest was given id. Taking back more
// than that takes back all.
func (t *nodes) forget(id, count uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.byID[id]
	if n == nil || n == t.root {
		return
	}
	n.lookups -= min(n.lookups, count)
	t.drop(n)
}

// drop removes n, and what only it kept, if nothing needs it any more.
func (t *nodes) drop(n *node) {
	for n != t.root && n.lookups == 0 && len(n.kids) == 0 && len(n.handles) == 0 {
		if t.byID[n.id] != n {
			return
		}
		delete(t.byID, n.id)
		if t.byKey[n.key] == n {
			delete(t.byKey, n.key)
		}
		n.watch.end()
		names := n.names
		n.names = nil
		for _, a := range names {
			delete(a.parent.kids, a.name)
		}
		if len(names) == 0 {
			return
		}
		// A directory has one name, and a file's further ones have parents
		// that the guest holds; those it does not hold go with their last kid.
		for _, a := range names[1:] {
			t.drop(a.parent)
		}
		n = names[0].parent
	}
}

// standing is what the rules say of n: all that they say of any of its names.
func (t *nodes) standing(n *node) standing {
	if len(t.rules.all) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return n.kept | t.rules.standing(t.progress(n, 0))
}

// standingAt is what the rules say of name in parent.
func (t *nodes) standingAt(parent *node, name string) standing {
	if len(t.rules.all) == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, says := t.rules.step(t.progress(parent, 0), name)
	return says
}

// maxDepth bounds walks up the tree: names that the host moved about can stand
// in a circle until the guest looks again.
const maxDepth = 10000

func (t *nodes) progress(n *node, depth int) progress {
	if n == t.root || len(t.rules.all) == 0 {
		return n.steps
	}
	if depth > maxDepth {
		return t.rules.end()
	}
	if n.steps != nil && n.stepsGen == t.gen+1 {
		return n.steps
	}
	var p progress
	for _, a := range n.names {
		q, _ := t.rules.step(t.progress(a.parent, depth+1), a.name)
		p = merge(p, q)
	}
	if p == nil {
		// Without a name it stands as it stood last.
		p = n.steps
	}
	n.steps, n.stepsGen = p, t.gen+1
	return p
}

// entry makes the guest know st's file as name in parent and appends the
// fuse_entry_out that says so.
func (s *session) entry(b []byte, parent *node, name string, st *unix.Statx_t, seen since) ([]byte, *node, error) {
	dev, err := s.devices.of(st, seen.fd, name)
	if err != nil {
		return b, nil, err
	}
	s.nodes.mu.Lock()
	n, err := s.nodes.put(parent, name, keyOf(st, dev), fileType(st), dev)
	if err != nil {
		s.nodes.mu.Unlock()
		return b, nil, err
	}
	n.mnt = st.Mnt_id
	ttl := s.tell(n, parent, st, seen)
	crowded := len(s.nodes.byID) > s.nodes.max/8*7
	s.nodes.mu.Unlock()
	if crowded {
		s.notices.crowd()
	}
	return s.appendEntry(b, n.id, ttl, st), n, nil
}

func keyOf(st *unix.Statx_t, dev *device) fileKey {
	k := fileKey{Inode: inodeOf(st)}
	if dev.born && st.Mask&unix.STATX_BTIME != 0 {
		k.born = ns(st.Btime)
	}
	return k
}

// forgetting handles FORGET and BATCH_FORGET, which have no reply.
func (s *session) forgetting(h fusewire.Header, in fusewire.In) error {
	if h.Op == fusewire.Forget {
		count := in.U64()
		if err := in.End(); err != nil {
			return err
		}
		s.nodes.forget(h.Node, count)
		return nil
	}
	count := in.U32()
	in.Skip(4)
	list := in.Data(min(count, fusewire.MaxMessage/16) * 16)
	if err := in.End(); err != nil {
		return err
	}
	each := fusewire.NewIn(list)
	for range count {
		id := each.U64()
		s.nodes.forget(id, each.U64())
	}
	return nil
}
