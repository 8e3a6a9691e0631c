package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// client is an agent made of one interface's words: it says what it offers and
// what has been, and finds a call in what it is answered.
type client struct {
	name, path  string
	said, ended func(at int) string // of the history: a call and its output, in JSON
	body        func(history []string, offer any, stream bool) string
}

var clients = []client{
	{
		name: "anthropic", path: "/v1/messages",
		said: func(n int) string {
			return `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{}}]}`
		},
		ended: func(n int) string {
			return fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":"output %d"}]}]}`, n)
		},
		body: func(history []string, offer any, stream bool) string {
			return fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"fix it"}%s],"tools":%s}`, stream, joined(history), offer)
		},
	},
	{
		name: "openai", path: "/v1/responses",
		said:  func(n int) string { return `{"type":"function_call","call_id":"a","name":"x","arguments":"{}"}` },
		ended: func(n int) string { return fmt.Sprintf(`{"type":"function_call_output","output":"output %d"}`, n) },
		body: func(history []string, offer any, stream bool) string {
			return fmt.Sprintf(`{"stream":%v,"input":[{"type":"message","content":[{"type":"input_text","text":"fix it"}]}%s],"tools":%s}`, stream, joined(history), offer)
		},
	},
	{
		name: "gemini", path: "/v1beta/models/m:generateContent",
		said: func(n int) string { return `{"role":"model","parts":[{"functionCall":{"name":"x","args":{}}}]}` },
		ended: func(n int) string {
			return fmt.Sprintf(`{"role":"user","parts":[{"functionResponse":{"response":{"output":"output %d"}}}]}`, n)
		},
		body: func(history []string, offer any, stream bool) string {
			return fmt.Sprintf(`{"contents":[{"role":"user","parts":[{"text":"fix it"}]}%s],"tools":[{"functionDeclarations":%s}]}`, joined(history), offer)
		},
	},
}

func joined(history []string) (s string) {
	for _, h := range history {
		s += "," + h
	}
	return s
}

// tools offers a shell and an editor, in the words of an interface.
func tools(name string) string {
	key := map[string]string{"anthropic": "input_schema", "openai": "parameters", "gemini": "parametersJsonSchema"}[name]
	return fmt.Sprintf(`[{"type":"function","name":"Bash","%[1]s":{"type":"object","properties":{"command":{"type":"string"},"timeout":{"type":"number"},"why":{"type":"string"}},"required":["command","why"]}},
	{"type":"function","name":"replace","%[1]s":{"type":"object","properties":{"file_path":{"type":"string"},"old_string":{"type":"string"},"new_string":{"type":"string"},"all":{"type":"boolean"}},"required":["all"]}}]`, key)
}

var task = Task{Header: "x-key", Value: "right", End: "It works.", Steps: []Action{
	{Do: "sh", Command: "make test"}, {Do: "edit", Path: "/w/a", Old: "x - y", New: "x + y"}, {Do: "read", Path: "/w/it's"},
}}

func post(t *testing.T, s *Server, path, key, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "https://models.example"+path, strings.NewReader(body))
	r.Header.Set("X-Key", key)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	out, _ := io.ReadAll(w.Result().Body)
	return w.Code, string(out)
}

// TestTask: each interface leads through the steps, by what the history holds, and
// the log has each turn.
func TestTask(t *testing.T) {
	for _, c := range clients {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s stream=%v", c.name, stream), func(t *testing.T) {
				var log bytes.Buffer
				s := New(&log)
				s.Add(task)
				path := c.path
				if stream && c.name == "gemini" {
					path = strings.Replace(path, ":generate", ":streamGenerate", 1)
				}
				var history []string
				for n, want := range [][]string{{"Bash", "make test", "as the task says"}, {"replace", "/w/a", "x - y", "x + y", "false"}, {"Bash", `cat '/w/it'`}, {"It works."}} {
					code, got := post(t, s, path, "right", c.body(history, tools(c.name), stream))
					if code != 200 || strings.HasPrefix(got, "data:") != (stream && c.name == "gemini") || strings.HasPrefix(got, "event:") != (stream && c.name != "gemini") {
						t.Fatalf("step %d: %d %s", n, code, got)
					}
					for _, w := range want {
						if !strings.Contains(got, w) {
							t.Errorf("step %d: %s, want %q", n, got, w)
						}
					}
					history = append(history, c.said(n), c.ended(n))
				}
				if code, got := post(t, s, path, "right", c.body(nil, "[]", stream)); code != 200 || !strings.Contains(got, "It works.") {
					t.Errorf("without tools: %d %s", code, got)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				var q Request
				if err := json.Unmarshal([]byte(lines[2]), &q); err != nil || len(lines) != 5 {
					t.Fatalf("%d lines, %v", len(lines), err)
				}
				if q.Step != 2 || !strings.Contains(q.Last, "output 1") || q.Status != 200 || q.Header.Get("X-Key") != "right" || q.Host != "models.example" || q.Path != path || len(q.Tools) != 2 {
					t.Errorf("%+v", q)
				}
			})
		}
	}
}

// TestRefusals: what is no turn, or not of the right client, is not played.
func TestRefusals(t *testing.T) {
	s := New(nil)
	s.Add(task)
	body := clients[0].body(nil, tools("anthropic"), false)
	for _, c := range []struct {
		path, key, body string
		want            int
	}{
		{"/v1/messages", "right", body, 200},
		{"/v1/messages", "wrong", body, 401},
		{"/v1/messages", "", body, 401},
		{"/v1/messages", "right", "{", 400},
		{"/v1/messages", "right", clients[0].body(nil, `[{"name":"Think"}]`, false), 400},
		{"/v1/other", "right", body, 404},
	} {
		if code, got := post(t, s, c.path, c.key, c.body); code != c.want {
			t.Errorf("%s %q: %d %s, want %d", c.path, c.key, code, got, c.want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "https://models.example/v1/responses", nil)
	r.Header.Set("Upgrade", "websocket")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusUpgradeRequired {
		t.Errorf("a websocket: %d", w.Code)
	}
	statuses := []int{}
	for _, q := range s.Seen() {
		statuses = append(statuses, q.Status)
	}
	if fmt.Sprint(statuses) != "[200 401 401 400 400 404 426]" {
		t.Errorf("noted %v", statuses)
	}
}

// TestBefore: a client waits while its step is held.
func TestBefore(t *testing.T) {
	held := task
	steps := make(chan int)
	held.Before = func(step int) { steps <- step }
	s := New(nil)
	s.Add(held)
	done := make(chan int, 1)
	go func() {
		code, _ := post(t, s, "/v1/messages", "right", clients[0].body(nil, tools("anthropic"), false))
		done <- code
	}()
	select {
	case <-done:
		t.Fatal("answered before")
	case step := <-steps:
		if step != 0 {
			t.Errorf("step %d", step)
		}
	}
	if code := <-done; code != 200 {
		t.Errorf("%d", code)
	}
}

// TestByShell: what a client has no tool for its shell does, whatever is in it.
func TestByShell(t *testing.T) {
	file := filepath.Join(t.TempDir(), "it's $(a) file")
	const old, now = "a = b - 1; # it's `x` $HOME \\ .*\n", "a = b + 1; # \"no\" $1 \\1 & it's\n"
	shell := []tool{{"exec_command", schema{Properties: map[string]schema{"cmd": {Type: "string"}}}}}
	for _, a := range []Action{{Do: "write", Path: file, New: "first\n" + old}, {Do: "edit", Path: file, Old: old, New: now}, {Do: "read", Path: file}} {
		r, err := a.call(shell)
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("sh", "-c", r.args["cmd"].(string)).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v %s", a.Do, err, out)
		}
		if a.Do == "read" && string(out) != "first\n"+now {
			t.Errorf("read %q", out)
		}
	}
	if text, _ := os.ReadFile(file); string(text) != "first\n"+now {
		t.Errorf("the file holds %q", text)
	}
	if r, err := (Action{Do: "sh", Command: "ls"}).call([]tool{{"shell", schema{Properties: map[string]schema{"command": {Type: "array"}}}}}); err != nil || fmt.Sprint(r.args["command"]) != "[sh -c ls]" {
		t.Errorf("a list of words: %v, %v", r, err)
	}
	edits := []tool{{"edit", schema{Properties: map[string]schema{"path": {}, "edits": {Type: "array", Items: &schema{Properties: map[string]schema{"oldText": {}, "newText": {}}}}}, Required: []string{"edits"}}}}
	if r, err := (Action{Do: "edit", Path: "/a", Old: "x", New: "y"}).call(edits); err != nil || fmt.Sprint(r.args) != "map[edits:[map[newText:y oldText:x]] path:/a]" {
		t.Errorf("a list of edits: %v, %v", r, err)
	}
	if _, err := (Action{Do: "think"}).call(shell); err == nil {
		t.Error("an action that there is not")
	}
	if _, err := (Action{Do: "read"}).call(nil); err == nil {
		t.Error("no tool at all")
	}
}
