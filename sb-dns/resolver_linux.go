package main

// ownResolver: Go's own resolver reads resolv.conf and the hosts file, as libc
// does, and lets us count what it sends.
const ownResolver = true
