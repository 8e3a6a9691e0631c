module sb/sb-kit

go 1.26.0

require sb/lib v0.0.0

require github.com/spf13/pflag v1.1.0 // indirect

replace sb/lib => ../lib
