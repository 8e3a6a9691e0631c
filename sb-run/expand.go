package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"sb/lib/manifest"
)

// expandFiles puts what a run has into the files of its profile that are merged: in
// their names and strings, {workspace} is the working directory; and a string that is
// {env:NAME} is a variable of the command, {end:NAME} its last characters, by which
// clients name a key. Without the variable the member is left out, and is taken out of
// what is there.
func expandFiles(m *manifest.Manifest) error {
	for i, f := range m.Run.Files {
		if !f.Merge {
			continue
		}
		var change map[string]any
		d := json.NewDecoder(strings.NewReader(f.Text))
		d.UseNumber()
		if err := d.Decode(&change); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(expand(m, change)); err != nil {
			return err
		}
		m.Run.Files[i].Text = out.String()
	}
	return nil
}

func expand(m *manifest.Manifest, value any) any {
	switch v := value.(type) {
	case string:
		return expandString(m, v)
	case map[string]any:
		all := map[string]any{}
		for key, sub := range v {
			all[strings.ReplaceAll(key, "{workspace}", m.Run.Workdir)] = expand(m, sub)
		}
		return all
	case []any:
		all := []any{}
		for _, sub := range v {
			if sub = expand(m, sub); sub != nil {
				all = append(all, sub)
			}
		}
		return all
	}
	return value
}

// keyEnd is how many characters of a key clients remember it by.
const keyEnd = 20

func expandString(m *manifest.Manifest, s string) any {
	what, name, ok := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(s, "{"), "}"), ":")
	if !ok || !strings.HasPrefix(s, "{") || !strings.HasSuffix(s, "}") || what != "env" && what != "end" {
		return strings.ReplaceAll(s, "{workspace}", m.Run.Workdir)
	}
	value, there := m.Run.Env[name]
	if !there {
		return nil
	}
	if what == "end" {
		return keyTail(value)
	}
	return value
}

func keyTail(key string) string { return key[max(0, len(key)-keyEnd):] }
