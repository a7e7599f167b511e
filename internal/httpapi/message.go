package httpapi

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"

	"github.com/narad-mq/narad/internal/model"
)

// appendDelivery appends the message object of a queue delivery: the fields of
// spec/http-api section 7.4 in that order.
func appendDelivery(dst []byte, d *model.Delivery) []byte {
	dst = appendMessageFields(dst, &d.Message)
	dst = append(dst, `,"receipt_handle":"`...)
	dst = d.Handle.AppendTo(dst)
	dst = append(dst, `","delivery_count":`...)
	dst = strconv.AppendInt(dst, int64(d.Count), 10)
	return append(dst, '}')
}

// appendReplayed appends the message object of a replay read, which has neither
// handle nor count.
func appendReplayed(dst []byte, m *model.Message) []byte {
	return append(appendMessageFields(dst, m), '}')
}

func appendMessageFields(dst []byte, m *model.Message) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendString(dst, m.Topic)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendInt(dst, int64(m.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, m.Offset, 10)
	if len(m.Key) > 0 {
		dst = append(dst, `,"key":`...)
		if utf8.Valid(m.Key) {
			dst = appendString(dst, m.Key)
		} else {
			dst = appendBase64(dst, m.Key)
			dst = append(dst, `,"key_encoding":"base64"`...)
		}
	}
	dst = append(dst, `,"payload":`...)
	switch {
	case !utf8.Valid(m.Payload):
		dst = appendBase64(dst, m.Payload)
		dst = append(dst, `,"payload_encoding":"base64"`...)
	case validJSON(m.Payload):
		dst = append(dst, m.Payload...)
	default:
		dst = appendString(dst, m.Payload)
	}
	dst = append(dst, `,"timestamp":`...)
	return strconv.AppendInt(dst, m.CommittedAt/1000, 10)
}

// messageSizeHint is about what a message object takes.
func messageSizeHint(m *model.Message) int {
	return 192 + len(m.Topic) + len(m.Key)*3/2 + len(m.Payload)*3/2
}

func appendBase64(dst, src []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, src)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendString appends valid UTF-8 as a JSON string that is also safe inside
// HTML and JavaScript: what encoding/json writes, byte for byte.
func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if plainInHTML(c) {
				i++
				continue
			}
			dst = append(dst, s[from:i]...)
			dst = appendEscape(dst, c)
			i++
			from = i
			continue
		}
		// U+2028 and U+2029, E2 80 A8 and E2 80 A9, end lines in JavaScript.
		if c == 0xE2 && i+2 < len(s) && s[i+1] == 0x80 && s[i+2]|1 == 0xA9 {
			dst = append(dst, s[from:i]...)
			dst = append(dst, `\u202`...)
			dst = append(dst, hexDigits[s[i+2]&0xF])
			i += 3
			from = i
			continue
		}
		i++
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

func plainInHTML(c byte) bool {
	return c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}
