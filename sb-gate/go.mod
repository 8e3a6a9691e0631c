module sb/sb-gate

go 1.26.0

require sb/lib v0.0.0

replace sb/lib => ../lib
