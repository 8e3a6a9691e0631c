package binding

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// letters are what a random part is made of; 22 of them are 130 bits.
const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// anyShape is the placeholder of a secret of which nothing is known.
const anyShape = "sb-*40"

var randomPart = regexp.MustCompile(`\*(\d+)`)

// Placeholder makes a new random placeholder of the shape of that secret's values.
func (s *Services) Placeholder(secret string) string {
	switch secret {
	case "codex":
		return jwt(map[string]any{"sub": random(26)})
	case "codex-account":
		return uuid()
	}
	shape, ok := s.Shapes[secret]
	if !ok {
		shape = anyShape
	}
	return randomPart.ReplaceAllStringFunc(shape, func(part string) string {
		n, _ := strconv.Atoi(part[1:])
		return random(n)
	})
}

// random returns n random letters, each as likely.
func random(n int) string {
	out := make([]byte, 0, n)
	for b := make([]byte, 64); len(out) < n; {
		rand.Read(b)
		for _, c := range b {
			if c &= 63; int(c) < len(letters) && len(out) < n {
				out = append(out, letters[c])
			}
		}
	}
	return string(out)
}

// uuid returns a random UUID (RFC 9562, version 4).
func uuid() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// far is when a placeholder expires that must say so: a client inside must never
// think that it has to refresh one.
var far = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)

// jwt returns an unsigned token with those claims, good for a lifetime.
func jwt(claims map[string]any) string {
	claims["exp"] = far.Unix()
	head, _ := json.Marshal(map[string]string{"alg": "none", "typ": "JWT"})
	body, _ := json.Marshal(claims)
	enc := base64.RawURLEncoding
	return enc.EncodeToString(head) + "." + enc.EncodeToString(body) + "." + enc.EncodeToString([]byte(random(22)))
}

// CodexLogin returns what Codex keeps of a sign-in, of placeholders alone: its
// auth.json in the guest.
func CodexLogin(token, account string) string {
	text, _ := json.Marshal(map[string]any{
		"auth_mode":      "chatgpt",
		"OPENAI_API_KEY": nil,
		"tokens": map[string]string{
			"id_token": jwt(map[string]any{
				"email":                       "user@sandbox.invalid",
				"https://api.openai.com/auth": map[string]string{"chatgpt_account_id": account, "chatgpt_plan_type": "plus", "chatgpt_user_id": "user-sandbox"},
			}),
			"access_token":  token,
			"refresh_token": "none-in-a-sandbox",
			"account_id":    account,
		},
		"last_refresh": far.Add(-30 * 24 * time.Hour).Format(time.RFC3339),
	})
	return string(text)
}
