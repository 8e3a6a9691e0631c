// Tapwire makes a Linux network namespace the guest of a gateway: it opens a TAP
// device there and carries its frames to the gateway's wire and back.
//
//	tapwire -fd 3 [-stream] [-mtu N] [-addr A/N] [-gw A] [-mac M]
//	tapwire -vfkit PATH …      gvproxy's socket
//	tapwire -passt PATH …      passt's
//
// The device speaks in segments of up to 64 KiB with checksums left to be made,
// as a guest's network card would; they are cut and joined here, so that what is
// measured is the gateway and not the pump. Frames on the wire are bare, at most
// the MTU, with full checksums. It says "up" when the device is.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var (
	wireFD = flag.Int("fd", -1, "the wire: one end of a socket pair")
	stream = flag.Bool("stream", false, "the wire is a stream: 4 bytes of length before each frame")
	vfkit  = flag.String("vfkit", "", "gvproxy's datagram socket")
	passt  = flag.String("passt", "", "passt's stream socket")
	mtu    = flag.Int("mtu", 1500, "bytes of an IP packet")
	addr   = flag.String("addr", "198.18.0.2/30", "the guest's address")
	gw     = flag.String("gw", "198.18.0.1", "its gateway")
	mac    = flag.String("mac", "5a:94:ef:e4:0c:02", "its link address")
	name   = flag.String("name", "eth0", "the device")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tapwire:", err)
		os.Exit(1)
	}
}

func run() error {
	tap, err := openTAP(*name)
	if err != nil {
		return err
	}
	os.WriteFile("/proc/sys/net/ipv6/conf/"+*name+"/disable_ipv6", []byte("1"), 0)
	for _, line := range []string{
		"link set lo up",
		"link set dev " + *name + " address " + *mac + " mtu " + fmt.Sprint(*mtu) + " txqueuelen 10000",
		"addr add " + *addr + " dev " + *name,
		"link set " + *name + " up",
		"route add default via " + *gw,
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	w, err := openWire()
	if err != nil {
		return err
	}
	// The two that pump never leave their processors; this one needs another.
	runtime.GOMAXPROCS(3)
	debug.SetGCPercent(-1)
	ends := make(chan error, 2)
	go func() { ends <- up(tap, w) }()
	go func() { ends <- down(w, tap) }()
	fmt.Println("up")
	return <-ends
}

// openTAP opens the device with the kernel's offloads: checksums and TCP
// segmentation over IPv4 are left to us, and taken from us.
func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	r, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, r); err != nil {
		return -1, fmt.Errorf("make %s: %w", name, err)
	}
	size := int32(vnetLen)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETVNETHDRSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
		return -1, fmt.Errorf("set the header's size: %w", errno)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4); err != nil {
		return -1, fmt.Errorf("set the offloads: %w", err)
	}
	return fd, nil
}

func openWire() (*wire, error) {
	switch {
	case *vfkit != "":
		// gvproxy answers to where it hears the magic word from.
		local := *vfkit + ".guest"
		os.Remove(local)
		c, err := net.DialUnix("unixgram", &net.UnixAddr{Name: local, Net: "unixgram"}, &net.UnixAddr{Name: *vfkit, Net: "unixgram"})
		if err != nil {
			return nil, err
		}
		if _, err := c.Write([]byte("VFKT")); err != nil {
			return nil, err
		}
		return fileWire(c.File())
	case *passt != "":
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: *passt, Net: "unix"})
		if err != nil {
			return nil, err
		}
		*stream = true
		return fileWire(c.File())
	}
	return newWire(*wireFD, *stream)
}

func fileWire(f *os.File, err error) (*wire, error) {
	if err != nil {
		return nil, err
	}
	n, err := unix.Dup(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	f.Close()
	return newWire(n, *stream)
}
