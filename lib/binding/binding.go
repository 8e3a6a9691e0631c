// Package binding says where a credential goes: which requests to which names get it, and how.
package binding

// Binding is one credential of a sandbox. It holds no secret.
type Binding struct {
	Secret      string   `toml:"secret"`   // its name in the keeper's store
	Variable    string   `toml:"variable"` // of the guest's environment, holds the placeholder
	Hosts       []string `toml:"hosts"`    // exact names (rule.Name grammar), no wildcards
	Header      string   `toml:"header"`   // e.g. authorization, x-api-key
	Format      string   `toml:"format"`   // "{}", "Bearer {}", "Basic USER" (base64 of USER:value)
	Methods     []string `toml:"methods"`  // none: GET HEAD POST PUT PATCH DELETE OPTIONS
	Paths       []string `toml:"paths"`    // prefixes; none: every path
	Websocket   bool     `toml:"websocket"`
	Inject      string   `toml:"inject"`      // "" (the placeholder must be presented) or "always"
	Placeholder string   `toml:"placeholder"` // random for each run; made by sb-run; never in a user's file
}
