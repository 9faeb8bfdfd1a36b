package driving

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

const (
	partitions    = 3
	count         = 330
	baseTimestamp = int64(1_700_000_000_000)
	stepMs        = 100
)

// Header is one header of a record; names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Record is a record as it is sent and as it is read, with partition and offset. A nil key or value is null; Timestamp is in milliseconds.
type Record struct {
	Partition  int32
	Offset     int64
	Timestamp  int64
	Key, Value []byte
	Headers    []Header
}

type place struct {
	partition int32
	offset    int64
}

func (r Record) place() place { return place{r.Partition, r.Offset} }

type entry struct {
	Key, Value *string
	Repeat     int
	Headers    [][2]string
}

// samples are the sample records in the order in which they are sent, each with the offset that it must get.
func samples(n int) ([]Record, error) {
	text, err := os.ReadFile(filepath.Join(os.Getenv("COMPAT"), "records.json"))
	if err != nil {
		return nil, err
	}
	var entries []entry
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, err
	}
	made := make([]Record, n)
	for i := range made {
		e := entries[i%len(entries)]
		made[i] = Record{
			Partition: int32(i % partitions), Offset: int64(i / partitions), Timestamp: baseTimestamp + int64(i)*stepMs,
			Key: decoded(e.Key), Value: repeated(decoded(e.Value), e.Repeat),
		}
		for _, header := range e.Headers {
			made[i].Headers = append(made[i].Headers, Header{header[0], decoded(&header[1])})
		}
	}
	return made, nil
}

func decoded(text *string) []byte {
	if text == nil {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(*text)
	if err != nil {
		panic(err)
	}
	return data
}

// repeated keeps null apart from empty.
func repeated(data []byte, times int) []byte {
	if data == nil {
		return nil
	}
	return bytes.Repeat(data, times)
}

// check returns the first difference between the records read and the expected ones, in the order of each partition.
func check(read, expected []Record, emptyIsNull bool) error {
	left := map[place]Record{}
	for _, record := range expected {
		left[record.place()] = record
	}
	last := map[int32]int64{}
	for _, record := range read {
		if before, seen := last[record.Partition]; seen && record.Offset <= before {
			return fmt.Errorf("%v arrived after offset %d", record.place(), before)
		}
		last[record.Partition] = record.Offset
		want, there := left[record.place()]
		if !there {
			return fmt.Errorf("%v is unexpected", record.place())
		}
		if err := same(record, want, emptyIsNull); err != nil {
			return fmt.Errorf("%v: %w", record.place(), err)
		}
		delete(left, record.place())
	}
	if len(left) > 0 {
		return fmt.Errorf("%d records were not read", len(left))
	}
	return nil
}

func same(got, want Record, emptyIsNull bool) error {
	equal := func(one, other []byte) bool {
		return bytes.Equal(one, other) && (emptyIsNull || (one == nil) == (other == nil))
	}
	switch {
	case got.Timestamp != want.Timestamp:
		return fmt.Errorf("timestamp %d instead of %d", got.Timestamp, want.Timestamp)
	case !equal(got.Key, want.Key):
		return fmt.Errorf("key %.40q instead of %.40q", got.Key, want.Key)
	case !equal(got.Value, want.Value):
		return fmt.Errorf("value %.40q instead of %.40q", got.Value, want.Value)
	case len(got.Headers) != len(want.Headers):
		return fmt.Errorf("%d headers instead of %d", len(got.Headers), len(want.Headers))
	}
	for i, header := range got.Headers {
		if header.Name != want.Headers[i].Name || !bytes.Equal(header.Value, want.Headers[i].Value) {
			return fmt.Errorf("header %d is %.40q instead of %.40q", i, header, want.Headers[i])
		}
	}
	return nil
}
