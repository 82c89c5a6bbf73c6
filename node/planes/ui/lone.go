package uiplane

import (
	"context"
	"net/http"
	"net/url"

	"corbel.dev/corbel/api/uiapi"
	"corbel.dev/corbel/doctor"
	"corbel.dev/corbel/kit/errkind"
	"corbel.dev/corbel/node/plane"
	"corbel.dev/corbel/node/planes/ui/planeasker"
	"corbel.dev/corbel/node/planes/ui/secretlogin"
	"corbel.dev/corbel/ui"
)

// lone is the web UI of a server that runs the secrets plane and nothing else.
type lone struct{ ask planeasker.Asker }

// SecretsAlone serves the web UI of a server that runs the secrets plane alone, over its API: its own screens, and for
// the others why they show nothing.
func SecretsAlone(front *plane.Front, api http.Handler) {
	l := &lone{ask: planeasker.Asker{Planes: map[string]uiapi.Plane{"secrets": secretlogin.API(api)}}}
	topics := map[string]uiapi.Topic{"secrets": bundle(&l.ask, l.rights, secretsParts, nil), "overview": l.overview(),
		"doctor": l.doctor()}
	for name, where := range map[string]string{"services": "catalog", "instances": "catalog", "nodes": "catalog",
		"kv": "catalog", "key": "catalog", "cluster": "catalog", "keyring": "catalog", "changes": "catalog", "mesh": "mesh",
		"propagation": "mesh", "applied": "mesh", "incidents": "monitor", "silences": "monitor", "jobs": "jobs",
		"usage":      "usage plane",
		"federation": "catalog", "everywhere": "monitor"} {
		topics[name] = absent(where)
	}
	mux := http.NewServeMux()
	mux.Handle("/ui/api/", uiapi.New(uiapi.Config{Login: l.login, Open: func(*http.Request) *uiapi.Person { return nil },
		Topics: topics, Search: l.search, Planes: l.ask.Planes, About: l.about, Browser: &secretlogin.Providers{Ask: &l.ask},
		Leave: secretlogin.Leave(&l.ask)}))
	mux.Handle("/", ui.Handler())
	front.Set(ui.Serves, mux)
}

// absent is a topic of a plane that does not run here: it names the plane.
type absent string

// Wait implements uiapi.Topic.
func (a absent) Wait(context.Context, uiapi.Person, url.Values, uint64) (any, uint64, error) {
	return nil, 0, errkind.Errorf(errkind.NotFound, "the %s does not run on this server, which has the secrets plane "+
		"alone: open /ui at a server of the %s", string(a), string(a))
}

// rights tells people apart by their tokens.
func (*lone) rights(_ context.Context, p *uiapi.Person) (string, error) { return p.Secrets, nil }

func (l *lone) login(r *http.Request, c *uiapi.Credentials) (uiapi.Person, error) {
	p := uiapi.Person{Remote: r.RemoteAddr}
	var err error
	switch {
	case c.Method != "":
		err = errkind.New(errkind.Invalid, "method: auth methods of the catalog are not known here: this server has the "+
			"secrets plane alone")
	case c.Token != "":
		err = secretlogin.ByToken(r.Context(), &l.ask, c.Token, &p)
	case c.User != "" && c.Password != "":
		err = secretlogin.ByPassword(r.Context(), &l.ask, c, &p)
	default:
		err = errkind.New(errkind.Invalid, "a login needs a token, or a user and a password")
	}
	if errkind.Is(err, errkind.Denied) || errkind.Is(err, errkind.Invalid) && c.Token == "" && c.User != "" {
		err = errkind.New(errkind.Denied, "the secrets plane does not know this login")
	}
	return p, err
}

func (l *lone) overview() *topic {
	return &topic{every: watched, rights: l.rights, make: func(ctx context.Context, p *uiapi.Person, _ url.Values) (any,
		error) {
		v := &overviewView{Services: []serviceRow{}, Findings: []findingRow{},
			Catalog: "this server has the secrets plane alone; services are shown at /ui of a server of the catalog"}
		if line, ok := secretsLine(ctx, &l.ask, p); ok {
			v.Planes = append(v.Planes, line)
		}
		report, err := l.report(ctx, p)
		if err != nil {
			v.Doctor = err.Error()
		} else {
			v.Findings = report.Findings[:min(len(report.Findings), worstShown)]
		}
		return v, ctx.Err()
	}}
}

func (l *lone) doctor() *topic {
	return &topic{every: examined, rights: l.rights, make: func(ctx context.Context, p *uiapi.Person, _ url.Values) (any,
		error) {
		return l.report(ctx, p)
	}}
}

// report is what the doctor of the servers of the secrets plane finds.
func (l *lone) report(ctx context.Context, p *uiapi.Person) (*doctorView, error) {
	var all doctor.Cluster
	err := l.ask.Get(ctx, p, "secrets", "/v1/sys/doctor/evidence?cluster", &all)
	switch {
	case errkind.Is(err, errkind.Denied):
		return nil, errkind.New(errkind.Denied, "the doctor's findings need a token that may read sys/doctor/evidence")
	case errkind.Is(err, errkind.NotFound):
		return nil, errkind.New(errkind.NotFound, "a server in dev mode has no doctor")
	case err != nil:
		return nil, err
	}
	report := doctor.Judge(&all)
	return viewOf(&report), nil
}

// search finds nothing: paths of secrets are looked for at their mount.
func (*lone) search(context.Context, uiapi.Person, string) ([]uiapi.Place, error) { return nil, nil }

func (*lone) about(p *uiapi.Person) map[string]any {
	return map[string]any{"datacenter": "", "node": "", "dev": false, "planes": map[string]bool{"secrets": true},
		"logins": map[string]bool{"secrets": p.Secrets != ""}}
}
