module sb/sb-gate

go 1.26.3

require sb/lib v0.0.0

require (
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // indirect
)

replace sb/lib => ../lib
