// Package reason lists every reason that a decision can have: one code for one
// cause, the same in a DNS answer, a dial, a TLS or HTTP check, sb-policy and
// the audit log.
package reason

import "sort"

// Code is one reason, as it stands in the audit log.
type Code string

// What was allowed, or ended as it should.
const (
	AllowRule Code = "allow-rule" // a rule allows it
	Done      Code = "done"       // a flow ended by both sides' FIN

	TokenRefresh Code = "token-refresh" // sb's own, to the token server of a sign-in
)

// Refused by the rules.
const (
	DenyRule          Code = "deny-rule"
	NoAllowRule       Code = "no-allow-rule"
	UnresolvedAddress Code = "unresolved-address"
	AddressClass      Code = "address-class"
	UDPDenied         Code = "udp-denied"
	QUICRefused       Code = "quic-refused"
	DNSType           Code = "dns-type"
)

// Refused because what the guest sent does not prove an allowed name.
const (
	BadName         Code = "bad-name"
	SNIDenied       Code = "sni-denied"
	SNIAbsent       Code = "sni-absent"
	SNIMalformed    Code = "sni-malformed"
	SNIMismatch     Code = "sni-mismatch"
	SNIEncrypted    Code = "sni-encrypted"
	HelloMalformed  Code = "hello-malformed"
	HelloTooLong    Code = "hello-too-long"
	HelloChanged    Code = "hello-changed"
	HostDenied      Code = "host-denied"
	HostAbsent      Code = "host-absent"
	HostMismatch    Code = "host-mismatch"
	HTTPMalformed   Code = "http-malformed"
	HTTPFraming     Code = "http-framing"
	HTTPTooLong     Code = "http-too-long"
	HTTPConnect     Code = "http-connect"
	HTTPUpgrade     Code = "http-upgrade"
	HTTP2Cleartext  Code = "http2-cleartext"
	NotIdentified   Code = "not-identified"
	NothingSent     Code = "nothing-sent"
	ServerFirst     Code = "server-first"
	DNSMalformed    Code = "dns-malformed"
	FrameMalformed  Code = "frame-malformed"
	FrameEtherType  Code = "frame-ethertype"
	FrameSource     Code = "frame-source"
	FrameFragment   Code = "frame-fragment"
	FrameProtocol   Code = "frame-protocol"
	FrameMulticast  Code = "frame-multicast"
	ICMPType        Code = "icmp-type"
	GatewayPort     Code = "gateway-port"
	InsideTheSubnet Code = "inside-subnet"
)

// Refused because a bound was reached.
const (
	HandleBudget   Code = "handle-budget"
	ResolveBudget  Code = "resolve-budget"
	NameBudget     Code = "name-budget"
	FlowBudget     Code = "flow-budget"
	DialBudget     Code = "dial-budget"
	QueryBudget    Code = "query-budget"
	PingBudget     Code = "ping-budget"
	DescriptorsOut Code = "descriptors-out"
	MemoryBudget   Code = "memory-budget"
)

// About names that a credential is bound to.
const (
	CredentialUsed       Code = "credential-used"
	CredentialScope      Code = "credential-scope"
	CredentialMint       Code = "credential-mint"
	GraphQLScope         Code = "graphql-scope"
	MethodOverride       Code = "method-override"
	PlaceholderElsewhere Code = "placeholder-elsewhere"
	SecretEcho           Code = "secret-echo"
	EchoUnreadable       Code = "echo-unreadable"
	SecretUnavailable    Code = "secret-unavailable"
	SecretUnusable       Code = "secret-unusable"
	HostMisdirected      Code = "host-misdirected"
	HTTPMethod           Code = "http-method"
	HTTPPath             Code = "http-path"
	HeaderTwice          Code = "header-twice"
	WebsocketUnbound     Code = "websocket-unbound"
	UpstreamUnverified   Code = "upstream-unverified"
	UpstreamFailed       Code = "upstream-failed"
	GuestHandshake       Code = "guest-handshake"
	BrokerAbsent         Code = "broker-absent"
	BrokerDied           Code = "broker-died"
)

// Failed outside.
const (
	NoSuchName         Code = "no-such-name"
	NoAnswer           Code = "no-answer"
	ConnectRefused     Code = "connect-refused"
	ConnectTimeout     Code = "connect-timeout"
	ConnectUnreachable Code = "connect-unreachable"
	ConnectFailed      Code = "connect-failed"
	PingUnavailable    Code = "ping-unavailable"
	Reset              Code = "reset"
	IdleTimeout        Code = "idle-timeout"
)

// About the gate and the run themselves.
const (
	AuditUnavailable Code = "audit-unavailable"
	PolicyChanged    Code = "policy-changed"
	GateStart        Code = "gate-start"
	GateProved       Code = "gate-proved"
	GateEnd          Code = "gate-end"
	GateDied         Code = "gate-died"
	DNSDied          Code = "dns-died"
	Dropped          Code = "lines-dropped"
)

// An Entry says what happened and what a user can do about it.
type Entry struct {
	Code Code
	What string // what happened, a sentence
	Fix  string // what allows it or what to do, a sentence; empty where nothing should be done
}

// Explain returns the entry of a code.
func Explain(c Code) (Entry, bool) {
	for _, e := range entries {
		if e.Code == c {
			return e, true
		}
	}
	return Entry{}, false
}

// All returns every entry, sorted by code.
func All() []Entry {
	all := append([]Entry(nil), entries...)
	sort.Slice(all, func(i, j int) bool { return all[i].Code < all[j].Code })
	return all
}
