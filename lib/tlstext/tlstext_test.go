package tlstext

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]string{
		"":                     "",
		"1603 01":              "160301",
		"00*3 ff":              "000000ff",
		`"a\x00b"`:             "610062",
		"u8{0102}":             "020102",
		"u16{u8{}}":            "000100",
		"u24{00*256}":          "000100" + strings.Repeat("00", 256),
		"first:2{010203}":      "0102",
		"at:1:ff{010203}":      "01ff03",
		"rec{01}":              "160301000101",
		"rec:17:0303{01}":      "170303000101",
		"recs:2{010203}":       "16030100020102160301000103",
		"cut:1{010203}":        "16030100010116030100020203",
		"msg:2{01}":            "0200000101",
		"ext:10{01}":           "000a000101",
		"pad:2":                "001500020000",
		"sni:a.b":              "00000008000600000" + "3612e62",
		`sni{"a.b"}`:           "00000008000600000" + "3612e62",
		"ext:0{u16{host:a.b}}": "00000008000600000" + "3612e62",
		"hello{}":              "0100004d0303" + strings.Repeat("00", 32) + "20" + strings.Repeat("00", 32) + "000413011302" + "0100" + "0000",
		"rec{ msg:1 { 01 } }":  "!",
		"u8{":                  "!",
		"u8{}}":                "!",
		"nonsense":             "!",
		"00*x":                 "!",
		"at:9:ff{00}":          "!",
		"rec:1{00}":            "!",
		`"open`:                "!",
	} {
		got, err := Bytes(text)
		if (err != nil) != (want == "!") {
			t.Errorf("%s: %x, %v", text, got, err)
		} else if h, _ := hex.DecodeString(want); want != "!" && !bytes.Equal(got, h) {
			t.Errorf("%s:\n got %x\nwant %x", text, got, h)
		}
	}
}
