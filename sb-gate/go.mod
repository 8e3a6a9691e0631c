module sb/sb-gate

go 1.26.3

require sb/lib v0.0.0

require gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237 // indirect

replace sb/lib => ../lib
