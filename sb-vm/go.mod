module sb/sb-vm

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/Code-Hex/vz/v3 v3.7.1
	github.com/creack/pty v1.1.24
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.50.0
	sb/lib v0.0.0
)

require (
	github.com/Code-Hex/go-infinity-channel v1.0.0 // indirect
	github.com/hashicorp/yamux v0.1.2 // indirect
	github.com/landlock-lsm/go-landlock v0.11.2 // indirect
	github.com/spf13/pflag v1.1.0 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	kernel.org/pub/linux/libs/security/libcap/psx v1.2.78 // indirect
)

replace sb/lib => ../lib
