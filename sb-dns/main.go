// Sb-dns answers the questions of a sandbox's guest by its rules, and finds out
// for the gate where an allowed name is.
//
// An allowed name is answered with an address that stands for that name alone;
// nothing is asked upstream to do so, so that a question by itself carries
// nothing out. Real addresses are asked for at dial time, of the host's own
// resolver. Sb-dns holds no flow and dials nothing but that resolver.
package main

import "sb/lib/say"

func main() { say.Main("sb-dns", run) }
