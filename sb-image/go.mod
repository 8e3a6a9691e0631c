module sb/sb-image

go 1.26.0

require (
	github.com/BurntSushi/toml v1.6.0
	github.com/erofs/go-erofs v0.3.1 // read by tests, as an independent implementation
	github.com/google/go-containerregistry v0.22.1
	github.com/klauspost/compress v1.20.4
	github.com/pierrec/lz4/v4 v4.1.33
	github.com/spf13/pflag v1.1.0
	github.com/therootcompany/xz v1.0.1
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.50.0
	sb/lib v0.0.0
)

require (
	github.com/docker/cli v29.7.2+incompatible // indirect
	github.com/docker/docker-credential-helpers v0.9.3 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/sirupsen/logrus v1.9.4 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	gotest.tools/v3 v3.5.2 // indirect
)

replace sb/lib => ../lib
