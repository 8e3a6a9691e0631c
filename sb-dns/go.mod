module sb/sb-dns

go 1.26.0

require sb/lib v0.0.0

require golang.org/x/net v0.62.0 // indirect

replace sb/lib => ../lib
