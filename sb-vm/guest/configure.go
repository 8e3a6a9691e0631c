//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"
	"unsafe"

	"sb/sb-vm/machine"

	"golang.org/x/sys/unix"
)

func setClock(t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// addEntropy mixes the host's randomness into the kernel's generator, credits
// it and has the generator start from it at once.
func addEntropy(b []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("add entropy: %w", err)
	}
	defer f.Close()
	// struct rand_pool_info of linux/random.h: entropy in bits, size in bytes, bytes.
	info := binary.NativeEndian.AppendUint32(nil, uint32(8*len(b)))
	info = binary.NativeEndian.AppendUint32(info, uint32(len(b)))
	info = append(info, b...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), rndReseedCRNG, 0); errno != 0 {
		return fmt.Errorf("reseed the random generator: %w", errno)
	}
	return nil
}

// rndReseedCRNG is RNDRESEEDCRNG of linux/random.h: _IO('R', 0x07).
const rndReseedCRNG = 0x5207

// The files that setNames writes, and what is in them as long as the machine is
// nobody's.
var nameFiles = map[string]string{"/etc/hostname": "", "/etc/hosts": "127.0.0.1 localhost\n", "/etc/resolv.conf": "", "/etc/machine-id": ""}

// placeNames puts files of ours where setNames writes.
func placeNames() error {
	for path, text := range nameFiles {
		if err := replaceFile(path, text); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// fillFile writes a file that placeNames made: nothing is in it that text does not
// begin with.
func fillFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// setNames gives the machine its hostname, its one nameserver and an identity
// of its own.
func setNames(c machine.Configure) error {
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set the hostname: %w", err)
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return fmt.Errorf("make a machine id: %w", err)
	}
	for path, text := range map[string]string{
		"/etc/hostname":    c.Hostname + "\n",
		"/etc/hosts":       "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + c.Hostname + "\n",
		"/etc/resolv.conf": "nameserver " + c.Gateway + "\n",
		"/etc/machine-id":  strings.ReplaceAll(strings.TrimSpace(string(id)), "-", "") + "\n",
	} {
		if err := fillFile(path, text); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

// raiseNetwork brings the interfaces up, without an address. There is no IPv6 on
// the wire, so eth0 does not try it.
func raiseNetwork(mtu int) error {
	os.WriteFile("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", []byte("1"), 0) // a kernel without IPv6 has none to switch off
	return setInterfaces([]setting{
		{"bring lo up", "lo", unix.SIOCSIFFLAGS, up},
		{"set the MTU", "eth0", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(mtu)); return nil }},
		{"bring eth0 up", "eth0", unix.SIOCSIFFLAGS, up},
	})
}

// awaitCarrier waits until the kernel counts eth0 as up, which it does up to a
// second later: what is saved before has that still to do each time.
func awaitCarrier() error {
	const file = "/sys/class/net/eth0/operstate"
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if state, err := os.ReadFile(file); err != nil || string(state) != "down\n" {
			return err
		}
	}
	return nil // it does no harm
}

// setNetwork gives eth0 its address and the default route.
func setNetwork(c machine.Configure) error {
	prefix, err := netip.ParsePrefix(c.Address)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	gateway, err := netip.ParseAddr(c.Gateway)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	mask := netip.PrefixFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), prefix.Bits()).Masked().Addr()
	if err := setInterfaces([]setting{
		{"set the address", "eth0", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(prefix.Addr().AsSlice()) }},
		{"set the netmask", "eth0", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask.AsSlice()) }},
	}); err != nil {
		return err
	}
	return addRoute(gateway)
}

// setting is one thing to set of an interface (netdevice(7)).
type setting struct {
	name, dev string
	req       uint
	set       func(*unix.Ifreq) error
}

func setInterfaces(all []setting) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	defer unix.Close(fd)
	for _, step := range all {
		r, err := unix.NewIfreq(step.dev)
		if err == nil {
			err = step.set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, step.req, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func up(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }

// rtentry is struct rtentry of linux/route.h.
type rtentry struct {
	_       uint64
	dst     unix.RawSockaddrInet4
	gateway unix.RawSockaddrInet4
	genmask unix.RawSockaddrInet4
	flags   uint16
	_       int16
	_       uint64
	_       uint64
	_       int16
	_       [3]int16
	_       uintptr
	_       uint64
	_       uint64
	_       uint16
}

func addRoute(gateway netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set the default route: %w", err)
	}
	defer unix.Close(fd)
	const rtfUp, rtfGateway = 1, 2
	r := rtentry{flags: rtfUp | rtfGateway}
	r.dst.Family, r.gateway.Family, r.genmask.Family = unix.AF_INET, unix.AF_INET, unix.AF_INET
	r.gateway.Addr = gateway.As4()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCADDRT, uintptr(unsafe.Pointer(&r))); errno != 0 && errno != unix.EEXIST {
		return fmt.Errorf("set the default route: %w", errno)
	}
	return nil
}
