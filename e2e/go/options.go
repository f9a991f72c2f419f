package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// options are arguments of the form --name value; a name without a value is a switch. An unknown name is an error.
type options struct {
	values     map[string]string
	properties map[string]string
}

func parse(args []string, known ...string) (*options, error) {
	o := &options{values: map[string]string{}, properties: map[string]string{}}
	names := map[string]bool{}
	for _, name := range known {
		names[name] = true
	}
	for i := 0; i < len(args); i++ {
		name, found := strings.CutPrefix(args[i], "--")
		if !found {
			return nil, fmt.Errorf("argument %q: expected --name", args[i])
		}
		if !names[name] {
			return nil, fmt.Errorf("argument --%s is unknown, known: %v", name, known)
		}
		value := "true"
		if i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			value = args[i]
		}
		if name == "property" {
			key, text, _ := strings.Cut(value, "=")
			o.properties[key] = text
		} else {
			o.values[name] = value
		}
	}
	for _, name := range []string{"namesrv", "topic"} {
		if o.values[name] == "" {
			return nil, fmt.Errorf("argument --%s is missing", name)
		}
	}
	for name, value := range o.values {
		switch name {
		case "count", "size", "threads", "rate", "seconds", "batch-size", "timeout-ms", "in-flight", "retries",
			"queues", "idle-ms", "consume-ms", "delay-level", "fail-times", "max-reconsume-times":
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				return nil, fmt.Errorf("argument --%s %q: expected a number", name, value)
			}
		}
	}
	return o, nil
}

func (o *options) text(name, fallback string) string {
	if value, found := o.values[name]; found {
		return value
	}
	return fallback
}

// number reads one of the arguments that parse checked.
func (o *options) number(name string, fallback int64) int64 {
	value, err := strconv.ParseInt(o.values[name], 10, 64)
	if err != nil {
		return fallback
	}
	return value
}

// makeBody is "key|" followed by letters, size bytes in all (more when the key alone is longer), as in Java.
func makeBody(key string, size int) []byte {
	body := []byte(key + "|")
	for i := len(body); i < size; i++ {
		body = append(body, byte('a'+i*7%26))
	}
	return body
}

func sha256Hex(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// bodyText is the body when it is short UTF-8, else nil.
func bodyText(body []byte) any {
	if len(body) > 256 || !utf8.Valid(body) {
		return nil
	}
	return string(body)
}
