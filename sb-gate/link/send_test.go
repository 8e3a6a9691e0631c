package link

import (
	"bytes"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// TestSmallFramesWait: small frames are the wire's own when WritePackets returns,
// whatever becomes of the packets, go out in their order, before a large one that
// follows them, and before the end; after it there are none.
func TestSmallFramesWait(t *testing.T) {
	e, far := endpoint(t)
	write := func(data []byte) {
		var list stack.PacketBufferList
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithView(buffer.NewViewWithData(data))})
		list.PushBack(pkt)
		e.WritePackets(list)
		if len(data) <= maxSmall {
			for _, part := range pkt.AsSlices() {
				clear(part)
			}
		}
		pkt.DecRef()
	}
	var want [][]byte
	for i, size := range []int{1, maxSmall, 60, 1400, maxSmall + 1, 2, 3} {
		data := bytes.Repeat([]byte{byte(i + 1)}, size)
		want = append(want, data)
		write(data)
	}
	e.Close()
	write([]byte("late"))
	for i, w := range want {
		f := make([]byte, 3000)
		n, err := read(far, f)
		if err != nil || !bytes.Equal(f[:n], w) {
			t.Fatalf("frame %d: %d bytes %.4x, %v, not %d of %.4x", i, n, f[:min(n, 4)], err, len(w), w)
		}
	}
}
