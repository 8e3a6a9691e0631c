// Sb-policy answers questions about rules and logs, on stdin and stdout, and
// holds nothing. It judges by the same code as the gate.
//
//	sb-policy check --allow '*.example.com' --deny a.example.com b.example.com:443
//	sb-policy log -f audit.log --denied
//	sb-policy explain no-allow-rule
//
// See sb-policy(1).
package main

import "sb/lib/say"

func main() { say.Main("sb-policy", run) }

func run(args []string) error {
	return say.Verbs("sb-policy", "Answers questions about rules and audit logs.", []say.Verb{
		{Name: "check", Args: "[HOST[:PORT][/udp]]…", Text: "which hosts do these rules allow", Run: check},
		{Name: "log", Args: "[FILE]…", Text: "read an audit log", Run: readLog},
		{Name: "explain", Args: "[CODE]", Text: "what a reason code means", Run: explain},
	}, args)
}
