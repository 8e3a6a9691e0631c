package main

// ownResolver: only the system's library knows macOS's per-domain and VPN
// resolvers. It asks a daemon, so what that sends cannot be counted here.
const ownResolver = false
