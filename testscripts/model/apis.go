package model

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic is the Messages API.
var anthropic = api{
	read: func(body []byte) (t turn, err error) {
		var q struct {
			Stream   bool
			Messages []struct{ Content json.RawMessage }
			Tools    []struct {
				Name   string
				Schema schema `json:"input_schema"`
			}
		}
		err = json.Unmarshal(body, &q)
		t.stream = q.Stream
		for _, o := range q.Tools {
			t.tools = append(t.tools, tool{o.Name, o.Schema})
		}
		for _, m := range q.Messages {
			var parts []struct{ Type string }
			json.Unmarshal(m.Content, &parts) // or it is a string
			output := false
			for _, p := range parts {
				if p.Type == "tool_use" {
					t.step++
				}
				output = output || p.Type == "tool_result"
			}
			if output || t.step == 0 { // a client may add words of its own
				t.last = text(m.Content)
			}
		}
		return t, err
	},
	write: func(w http.ResponseWriter, stream bool, r reply) {
		block, empty, delta, stop := object{"type": "text", "text": r.text}, object{"type": "text", "text": ""}, object{"type": "text_delta", "text": r.text}, "end_turn"
		if r.tool != "" {
			args, _ := json.Marshal(r.args)
			block = object{"type": "tool_use", "id": "toolu_" + r.id, "name": r.tool, "input": r.args}
			empty = object{"type": "tool_use", "id": "toolu_" + r.id, "name": r.tool, "input": object{}}
			delta, stop = object{"type": "input_json_delta", "partial_json": string(args)}, "tool_use"
		}
		message := object{"id": "msg_" + r.id, "type": "message", "role": "assistant", "model": "scripted", "content": []object{block}, "stop_reason": stop, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1}}
		if !stream {
			whole(w, message)
			return
		}
		message["content"], message["stop_reason"] = []object{}, nil
		events(w, object{"type": "message_start", "message": message},
			object{"type": "content_block_start", "index": 0, "content_block": empty},
			object{"type": "content_block_delta", "index": 0, "delta": delta},
			object{"type": "content_block_stop", "index": 0},
			object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}},
			object{"type": "message_stop"})
	},
}

// openai is the Responses API.
var openai = api{
	read: func(body []byte) (t turn, err error) {
		var q struct {
			Stream bool
			Input  []struct {
				Type            string
				Content, Output json.RawMessage
			}
			Tools []struct {
				Name       string
				Parameters schema
			}
		}
		err = json.Unmarshal(body, &q)
		t.stream = q.Stream
		for _, o := range q.Tools {
			if o.Name != "" { // or it is the vendor's own, such as a search
				t.tools = append(t.tools, tool{o.Name, o.Parameters})
			}
		}
		for _, i := range q.Input {
			switch {
			case strings.HasSuffix(i.Type, "_call"):
				t.step++
			case i.Output != nil:
				t.last = text(i.Output)
			case i.Content != nil && t.step == 0:
				t.last = text(i.Content)
			}
		}
		return t, err
	},
	write: func(w http.ResponseWriter, stream bool, r reply) {
		item := object{"type": "message", "id": "msg_" + r.id, "role": "assistant", "status": "completed", "content": []object{{"type": "output_text", "text": r.text, "annotations": []any{}}}}
		if r.tool != "" {
			args, _ := json.Marshal(r.args)
			item = object{"type": "function_call", "id": "fc_" + r.id, "call_id": r.id, "name": r.tool, "arguments": string(args), "status": "completed"}
		}
		done := object{"id": "resp_" + r.id, "object": "response", "model": "scripted", "status": "completed", "output": []object{item},
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0}}}
		if !stream {
			whole(w, done)
			return
		}
		events(w, object{"type": "response.created", "response": object{"id": "resp_" + r.id, "status": "in_progress"}},
			object{"type": "response.output_item.added", "output_index": 0, "item": item},
			object{"type": "response.output_item.done", "output_index": 0, "item": item},
			object{"type": "response.completed", "response": done})
	},
}

// gemini is generateContent and its stream.
var gemini = api{
	read: func(body []byte) (t turn, err error) {
		var q struct {
			Contents []struct {
				Parts []struct {
					Text             string
					FunctionCall     json.RawMessage
					FunctionResponse *struct{ Response json.RawMessage }
				}
			}
			Tools []struct {
				FunctionDeclarations []struct {
					Name                             string
					Parameters, ParametersJSONSchema schema
				}
			}
		}
		err = json.Unmarshal(body, &q)
		for _, group := range q.Tools {
			for _, o := range group.FunctionDeclarations {
				s := o.ParametersJSONSchema
				if len(s.Properties) == 0 {
					s = o.Parameters
				}
				t.tools = append(t.tools, tool{o.Name, s})
			}
		}
		for _, c := range q.Contents {
			for _, p := range c.Parts {
				switch {
				case p.FunctionCall != nil:
					t.step++
				case p.FunctionResponse != nil:
					t.last = string(p.FunctionResponse.Response)
				case t.step == 0:
					t.last = p.Text
				}
			}
		}
		return t, err
	},
	write: func(w http.ResponseWriter, stream bool, r reply) {
		part := object{"text": r.text}
		if r.tool != "" {
			part = object{"functionCall": object{"name": r.tool, "args": r.args}}
		}
		answer := object{"candidates": []object{{"index": 0, "content": object{"role": "model", "parts": []object{part}}, "finishReason": "STOP"}},
			"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}, "modelVersion": "scripted"}
		if stream {
			events(w, answer)
		} else {
			whole(w, answer)
		}
	},
}
