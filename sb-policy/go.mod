module sb/sb-policy

go 1.26.0

require sb/lib v0.0.0

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/spf13/pflag v1.1.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace sb/lib => ../lib
