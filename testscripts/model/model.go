// Package model is a model server that plays scripts: a coding agent that is
// pointed at it does a whole task, with no account and no Internet. It speaks the
// Anthropic Messages, OpenAI Responses and Gemini interfaces, streaming or not.
//
// A turn has no memory: the step to play is the number of tool calls in the history
// that the request brings along. Retries, titles and questions on the side do not
// upset it.
package model

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Task is what one client is led through.
type Task struct {
	// Header and Value are the credential of the client whose task it is: one that
	// presents any other is answered 401. With no Header it is everybody's.
	Header, Value string

	Steps []Action
	End   string // what is said after them

	// Before, if set, is called before a step is played, len(Steps) being the End:
	// while it has not returned, the client waits in the middle of its request.
	Before func(step int)
}

// Request is what the server saw of one request.
type Request struct {
	Time                      time.Time // when it came
	Host, Method, Path, Query string
	Header                    http.Header
	Tools                     []string `json:",omitempty"` // that the client offers
	Step                      int      // -1: not a turn
	Last                      string   `json:",omitempty"` // what ended the history: a tool's output
	Status                    int
}

// Server is the model server, a handler for every host that it stands in for.
type Server struct {
	log io.Writer

	mu    sync.Mutex
	tasks []Task
	seen  []Request
}

// New returns a server without tasks. Each request is written to log as a line of
// JSON, unless it is nil.
func New(log io.Writer) *Server { return &Server{log: log} }

// Add gives the server another task.
func (s *Server) Add(t Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = append(s.tasks, t)
}

// Seen are the requests so far.
func (s *Server) Seen() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.seen...)
}

// Note enters a request that was answered elsewhere.
func (s *Server) Note(r *http.Request, status int) {
	s.note(requestOf(r), status)
}

func requestOf(r *http.Request) Request {
	return Request{Time: time.Now(), Host: r.Host, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header.Clone(), Step: -1}
}

func (s *Server) note(q Request, status int) {
	q.Status = status
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, q)
	if s.log != nil {
		json.NewEncoder(s.log).Encode(q)
	}
}

// task finds the task of whoever presents this credential.
func (s *Server) task(h http.Header) (Task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.Header == "" || h.Get(t.Header) == t.Value {
			return t, true
		}
	}
	return Task{}, false
}

// maxBody bounds a request, in bytes: agents send their whole history.
const maxBody = 32 << 20

// ServeHTTP plays a step to a client. What is no turn of a conversation is not
// found; a websocket is refused in a way that has clients go on without.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := requestOf(r)
	status, text := s.serve(w, r, &q)
	if status != http.StatusOK {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(object{"type": "error", "error": object{"type": "refused", "code": fmt.Sprint(status), "message": text}})
	}
	s.note(q, status)
}

// serve answers a turn, or returns why it does not.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, q *Request) (status int, why string) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return http.StatusUpgradeRequired, "no websockets here"
	}
	api := apiOf(r)
	if api == nil {
		return http.StatusNotFound, "there is no " + r.URL.Path
	}
	t, ok := s.task(r.Header)
	if !ok {
		return http.StatusUnauthorized, "this credential is nobody's"
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return http.StatusRequestEntityTooLarge, err.Error()
	}
	turn, err := api.read(body)
	if err != nil {
		return http.StatusBadRequest, "the request is not understood: " + err.Error()
	}
	q.Step, q.Last = turn.step, turn.last
	for _, tool := range turn.tools {
		q.Tools = append(q.Tools, tool.name)
	}
	reply, err := t.play(turn)
	if err != nil {
		return http.StatusBadRequest, err.Error()
	}
	if t.Before != nil && len(turn.tools) > 0 {
		t.Before(turn.step)
	}
	api.write(w, turn.stream || streams(r), reply)
	return http.StatusOK, ""
}

// object is a value in JSON.
type object = map[string]any

// turn is a request for the next thing that a model says.
type turn struct {
	step   int // tool calls so far
	tools  []tool
	last   string
	stream bool
}

// reply is what it says: text, or a call if there is a tool.
type reply struct {
	id   string // of the call
	text string
	tool string
	args object
}

// api is one way of talking to a model.
type api struct {
	read  func(body []byte) (turn, error)
	write func(w http.ResponseWriter, stream bool, r reply)
}

// apiOf is the interface that a request is of, nil if none.
func apiOf(r *http.Request) *api {
	switch path := r.URL.Path; {
	case r.Method != http.MethodPost:
	case strings.HasSuffix(path, "/messages"):
		return &anthropic
	case strings.HasSuffix(path, "/responses"):
		return &openai
	case strings.Contains(path, "/models/") && (strings.HasSuffix(path, ":generateContent") || strings.HasSuffix(path, ":streamGenerateContent")):
		return &gemini
	}
	return nil
}

// streams reports whether the address alone asks for a stream.
func streams(r *http.Request) bool {
	return strings.HasSuffix(r.URL.Path, ":streamGenerateContent")
}

// events sends server-sent events, named or not.
func events(w http.ResponseWriter, each ...object) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	for _, e := range each {
		if name, ok := e["type"].(string); ok {
			fmt.Fprintf(w, "event: %s\n", name)
		}
		text, _ := json.Marshal(e)
		fmt.Fprintf(w, "data: %s\n\n", text)
		out.Flush()
	}
}

func whole(w http.ResponseWriter, answer object) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answer)
}
