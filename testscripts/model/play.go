package model

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Action is one thing that a model does, in no client's words. Do says which:
//
//	sh     runs Command
//	read   reads the file Path
//	write  makes the file Path of New
//	edit   puts New in the place of Old in the file Path
type Action struct {
	Do             string
	Command        string
	Path, Old, New string
	Tool           string         // by this tool of the client's, with Args, whatever Do says
	Args           map[string]any // of Tool
}

// tool is one that a client offers.
type tool struct {
	name   string
	schema schema
}

// schema is what is read of a tool's JSON Schema.
type schema struct {
	Type       any               `json:"type"`
	Properties map[string]schema `json:"properties"`
	Required   []string          `json:"required"`
	Enum       []any             `json:"enum"`
	Items      *schema           `json:"items"`
}

// names are what clients call a tool for an action.
var names = map[string][]string{
	"sh":    {"bash", "shell", "exec_command", "shell_command", "run_shell_command", "local_shell"},
	"read":  {"read", "read_file", "view"},
	"write": {"write", "write_file", "create"},
	"edit":  {"edit", "replace", "str_replace"},
}

// play returns what the task has at a turn. A request that offers no tools is one
// on the side, such as for a title.
func (t Task) play(at turn) (reply, error) {
	if len(at.tools) == 0 || at.step >= len(t.Steps) {
		return reply{text: t.End}, nil
	}
	r, err := t.Steps[at.step].call(at.tools)
	r.id = fmt.Sprintf("call_%d", at.step)
	return r, err
}

// call makes a call of one of the tools, by the shell if none is for it.
func (a Action) call(tools []tool) (reply, error) {
	if a.Tool != "" {
		return reply{tool: a.Tool, args: a.Args}, nil
	}
	if names[a.Do] == nil {
		return reply{}, fmt.Errorf("%q is no action", a.Do)
	}
	for _, t := range tools {
		if slices.Contains(names[a.Do], strings.ToLower(t.name)) {
			return reply{tool: t.name, args: a.fill(t.schema)}, nil
		}
	}
	if a.Do == "sh" {
		return reply{}, fmt.Errorf("the client offers no shell")
	}
	return Action{Do: "sh", Command: a.shell()}.call(tools)
}

// shell is the action as a command.
func (a Action) shell() string {
	switch a.Do {
	case "read":
		return "cat " + quote(a.Path)
	case "write":
		return fmt.Sprintf("printf %%s %s >%s", quote(a.New), quote(a.Path))
	case "edit":
		// In place: a new file would be another's, with other rights.
		return fmt.Sprintf(`OLD=%s NEW=%s perl -0777 -e 'open F, "+<", $ARGV[0] or die $!; $_ = <F>; s/\Q$ENV{OLD}\E/$ENV{NEW}/ or die "not there"; seek F, 0, 0; truncate F, 0; print F $_' %s`,
			quote(a.Old), quote(a.New), quote(a.Path))
	}
	return a.Command
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// known is what an action says, by the names that clients have for it.
func (a Action) known(name string) string {
	switch strings.ToLower(name) {
	case "command", "cmd":
		return a.Command
	case "file_path", "filepath", "path", "absolute_path":
		return a.Path
	case "content", "text", "file_text":
		if a.Do == "write" {
			return a.New
		}
	case "old_string", "oldstring", "old_str", "oldtext":
		return a.Old
	case "new_string", "newstring", "new_str", "newtext":
		return a.New
	}
	return ""
}

// fits reports whether a schema asks for both texts of an edit.
func (a Action) fits(s schema) bool {
	texts := 0
	for name := range s.Properties {
		if value := a.known(name); value != "" && (value == a.Old || value == a.New) {
			texts++
		}
	}
	return a.Do == "edit" && texts == 2
}

// fill makes the arguments that a schema asks for: what the action says, and something
// that fits for whatever else is required.
func (a Action) fill(s schema) object {
	args := object{}
	for name, p := range s.Properties {
		value := a.known(name)
		switch {
		case value != "" && p.is("array"):
			args[name] = []string{"sh", "-c", value}
		case value != "":
			args[name] = value
		case p.Items != nil && a.fits(*p.Items): // a list of edits, say
			args[name] = []any{a.fill(*p.Items)}
		case slices.Contains(s.Required, name):
			args[name] = p.anything()
		}
	}
	return args
}

func (s schema) is(kind string) bool {
	list, ok := s.Type.([]any)
	if !ok {
		list = []any{s.Type}
	}
	return slices.ContainsFunc(list, func(t any) bool { name, _ := t.(string); return strings.EqualFold(name, kind) })
}

// anything is a value that fits.
func (s schema) anything() any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.is("boolean"):
		return false
	case s.is("integer"), s.is("number"):
		return 1
	case s.is("array"):
		return []any{}
	case s.is("object"):
		return object{}
	}
	return "as the task says"
}

// text returns what of a history's entry is words: a string, or the text of its
// parts.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text    string
		Content json.RawMessage
		Output  json.RawMessage
	}
	json.Unmarshal(raw, &parts)
	for _, p := range parts {
		s += p.Text
		for _, inner := range []json.RawMessage{p.Content, p.Output} {
			if inner != nil {
				s += text(inner)
			}
		}
	}
	return s
}
