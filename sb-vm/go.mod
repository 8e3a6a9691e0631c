module sb/sb-vm

go 1.26.0

require (
	golang.org/x/sys v0.50.0
	sb/lib v0.0.0
)

require (
	github.com/creack/pty v1.1.24 // indirect
	github.com/spf13/pflag v1.1.0 // indirect
)

replace sb/lib => ../lib
