package script

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dop251/goja"
	"github.com/dop251/goja/parser"

	"corbel.dev/corbel/kit/errkind"
)

// runtime is one JavaScript machine; one goroutine at a time uses it.
type runtime struct {
	vm      *goja.Runtime
	prepare goja.Callable // makes a variable of JSON
	write   goja.Callable // makes JSON of a variable
	globals int           // that are there between runs
	given   []string      // variables of this run
	spoiled bool
	events  others
}

// others are the events that the program of this run may ask for.
type others struct {
	may     bool
	fetched map[string]string
	asks    []string // what it asked for, and is not in fetched
}

// errAsks ends a program that asked for what is to be fetched first. It may be caught: asks tells of it all the same.
var errAsks = errors.New("the event is fetched, and the program runs again")

// event is the JSON of an event.
func (o *others) event(entity, check string) (string, error) {
	name := asked(entity, check)
	text, ok := o.fetched[name]
	switch {
	case ok:
		return text, nil
	case !o.may:
		return "", errors.New("other events cannot be asked for here")
	case len(o.asks) <= maxAsks:
		o.asks = append(o.asks, name)
	}
	return "", errAsks
}

// prelude takes from a new machine what makes memory in one step, gives objects the short names of
// the contract (check.labels for check.metadata.labels; whether the event is an incident), and
// freezes everything. It is a function of what is bound in Go.
const prelude = `(function(global, limit, fetch) {
	"use strict";
	["ArrayBuffer", "SharedArrayBuffer", "DataView", "Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array",
	 "Uint32Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array", "Proxy", "Reflect", "WeakRef", "FinalizationRegistry",
	 "BigInt", "Promise"].forEach(function(n) { delete global[n]; });
	var lengths = function(proto, guard) {
		Object.getOwnPropertyNames(proto).forEach(function(n) {
			var f = proto[n];
			if (n !== "constructor" && typeof f === "function") proto[n] = guard(n, f);
		});
	};
	var apply = Function.prototype.call.bind(Function.prototype.apply);
	lengths(Array.prototype, function(n, f) {
		return function() { "use strict"; limit(this.length); return apply(f, this, arguments); };
	});
	["repeat", "padStart", "padEnd"].forEach(function(n) {
		var f = String.prototype[n];
		String.prototype[n] = function(count) {
			limit(n === "repeat" ? this.length * count : count);
			return apply(f, this, arguments);
		};
	});
	var plainApply = Function.prototype.apply;
	Function.prototype.apply = function(self, list) { if (list) limit(list.length); return apply(plainApply, this, arguments); };
	var from = Array.from;
	Array.from = function(list) { if (list) limit(list.length); return apply(from, this, arguments); };

	var named = Object.create(Object.prototype);
	["name", "namespace", "labels", "annotations", "created_by"].forEach(function(n) {
		Object.defineProperty(named, n, {
			get: function() { return this.metadata === undefined ? undefined : this.metadata[n]; },
			set: function(v) { this.metadata[n] = v; },
		});
	});
	var event = Object.create(named);
	var before = function(e) { var h = e.check && e.check.history; return h && h.length > 1 ? h[h.length - 2] : null; };
	var known = {
		has_check: function(e) { return !!e.check; },
		has_metrics: function(e) { return !!e.metrics; },
		is_incident: function(e) { return !!e.check && e.check.status !== 0; },
		is_resolution: function(e) { var b = before(e); return !!b && b.status !== 0 && e.check.status === 0; },
		is_silenced: function(e) { return !!e.check && !!e.check.silenced && e.check.silenced.length > 0; },
		is_flapping_start: function(e) { return !!before(e) && e.check.state === "flapping"; },
		is_flapping_end: function(e) { return false; },
	};
	Object.keys(known).forEach(function(n) {
		Object.defineProperty(event, n, {
			get: function() { return known[n](this); },
			set: function(v) { Object.defineProperty(this, n, {value: v, writable: true, configurable: true, enumerable: true}); },
		});
	});
	var parse = JSON.parse, setProto = Object.setPrototypeOf;
	var name = function(o, proto) {
		var m = o.metadata || (o.metadata = {});
		if (!m.labels) m.labels = {};
		if (!m.annotations) m.annotations = {};
		setProto(o, proto);
	};
	var freeze = function(o) {
		if ((typeof o !== "object" && typeof o !== "function") || o === null || o === global || Object.isFrozen(o)) return;
		Object.freeze(o);
		freeze(Object.getPrototypeOf(o));
		Object.getOwnPropertyNames(o).forEach(function(n) {
			var d = Object.getOwnPropertyDescriptor(o, n);
			freeze(d.value); freeze(d.get); freeze(d.set);
		});
	};
	var eventOf = function(o) {
		name(o, event);
		if (o.check) name(o.check, named);
		if (o.entity) name(o.entity, named);
	};
	var isArray = Array.isArray;
	var other = function(entity, check) {
		var text = fetch(String(entity), String(check));
		if (text === "") return null;
		var o = parse(text);
		eventOf(o);
		return o;
	};
	var sensu = {
		FetchEvent: other,
		EventStatus: function() {
			var out = [];
			for (var i = 0; i < arguments.length; i++) {
				var one = arguments[i];
				var e = typeof one === "object" ? other(one.entity, one.check) : other(global.event.entity.name, one);
				if (e && e.check) out.push(e.check.status);
			}
			return out;
		},
		CheckDependencies: function() {
			return sensu.EventStatus.apply(sensu, arguments).every(function(status) { return status === 0; });
		},
	};
	global.sensu = sensu;
	return {
		prepare: function(name_, text) {
			var o = parse(text);
			if (isArray(o)) { for (var i = 0; i < o.length; i++) eventOf(o[i]); }
			else if (name_ === "event") eventOf(o);
			else if (name_ === "entity") name(o, named);
			return o;
		},
		write: JSON.stringify,
		freeze: function() {
			Object.getOwnPropertyNames(global).forEach(function(n) {
				var d = Object.getOwnPropertyDescriptor(global, n);
				freeze(d.value);
				if (d.value !== global && "value" in d) Object.defineProperty(global, n, {value: d.value, writable: false, configurable: false});
			});
			freeze(named); freeze(event);
		},
	};
})`

var preludeProgram = sync.OnceValue(func() *goja.Program { return goja.MustCompile("", prelude, false) })

// newRuntime makes a machine that has a library ready.
func newRuntime(lib *ready) (*runtime, error) {
	vm := goja.New()
	vm.SetParserOptions(parser.WithDisableSourceMaps)
	vm.SetMaxCallStackSize(maxCalls)
	made, err := vm.RunProgram(preludeProgram())
	if err != nil {
		return nil, errkind.E(errkind.Internal, "the prelude of JavaScript", err)
	}
	f, _ := goja.AssertFunction(made)
	r := &runtime{vm: vm}
	out, err := f(goja.Undefined(), vm.GlobalObject(), vm.ToValue(func(n float64) {
		if n > maxRepeat {
			panic(vm.NewTypeError("more than %d elements in one step", maxRepeat))
		}
	}), vm.ToValue(r.events.event))
	if err != nil {
		return nil, errkind.E(errkind.Internal, "the prelude of JavaScript", err)
	}
	tools := out.ToObject(vm)
	r.prepare, _ = goja.AssertFunction(tools.Get("prepare"))
	r.write, _ = goja.AssertFunction(tools.Get("write"))
	freeze, _ := goja.AssertFunction(tools.Get("freeze"))
	for name, part := range map[string]func(time.Time) int{
		"hour": time.Time.Hour, "minute": time.Time.Minute, "second": time.Time.Second,
		"weekday": func(t time.Time) int { return int(t.Weekday()) },
	} {
		value := vm.ToValue(func(call goja.FunctionCall) goja.Value {
			if len(call.Arguments) == 0 {
				return vm.ToValue(0)
			}
			return vm.ToValue(part(time.Unix(call.Arguments[0].ToInteger(), 0).UTC()))
		})
		if err := vm.GlobalObject().DefineDataProperty(name, value, goja.FLAG_TRUE, goja.FLAG_TRUE,
			goja.FLAG_FALSE); err != nil {
			return nil, errkind.E(errkind.Internal, "the prelude of JavaScript", err)
		}
	}
	w := watch{vm: vm, until: time.Now().Add(libraryLimit), ctx: context.Background()}
	w.start()
	for _, p := range lib.programs {
		if _, err = vm.RunProgram(p); err != nil {
			break
		}
	}
	if cut := w.stop(); cut != nil {
		err = cut
	}
	if err != nil {
		return nil, errkind.E(errkind.Invalid, "a script of an asset", err)
	}
	if _, err := freeze(goja.Undefined()); err != nil {
		return nil, errkind.E(errkind.Internal, "the prelude of JavaScript", err)
	}
	r.globals = len(vm.GlobalObject().GetOwnPropertyNames())
	return r, nil
}

// libraryLimit is how long the scripts of assets may take to define what they define, together.
const libraryLimit = time.Second

func (r *runtime) run(ctx context.Context, p *goja.Program, t Task) (out Result, err error) {
	limit := t.Limit
	if limit <= 0 {
		limit = Limit
	}
	r.events = others{may: t.mayAsk || t.Fetch != nil, fetched: t.fetched}
	first, err := r.set(t.Vars)
	if err != nil {
		return out, err
	}
	w := watch{vm: r.vm, until: time.Now().Add(limit), ctx: ctx}
	w.start()
	value, err := r.vm.RunProgram(p)
	if err == nil {
		out, err = r.result(value, first, t.After)
	}
	if err != nil {
		err = errkind.E(errkind.Invalid, "JavaScript", thrown(err))
	}
	if cut := w.stop(); cut != nil {
		r.spoiled = true // its interrupt may still stand
		return Result{}, cut
	}
	if asks := r.events.asks; len(asks) > 0 {
		return Result{asks: asks}, nil
	}
	return out, err
}

// result says what a value is. Making a condition or JSON of it may run code of the program.
func (r *runtime) result(value, first goja.Value, after bool) (out Result, err error) {
	out.Nil = goja.IsUndefined(value) || goja.IsNull(value)
	out.Truth = value.ToBoolean()
	if text, ok := value.(goja.String); ok {
		out.IsText, out.Text = true, text.String()
	}
	if !after || !out.Nil || first == nil {
		return out, nil
	}
	text, err := r.write(goja.Undefined(), first)
	if err == nil {
		out.After = []byte(text.String())
	}
	return out, err
}

// set makes the variables and returns the first.
func (r *runtime) set(vars []Var) (first goja.Value, err error) {
	for i, v := range vars {
		value := r.vm.ToValue(v.Text)
		if v.JSON != nil {
			if value, err = r.prepare(goja.Undefined(), r.vm.ToValue(v.Name), r.vm.ToValue(string(v.JSON))); err != nil {
				return nil, errkind.E(errkind.Internal, "a variable of JavaScript", err)
			}
		}
		if i == 0 {
			first = value
		}
		r.given = append(r.given, v.Name)
		if err := r.vm.GlobalObject().DefineDataProperty(v.Name, value, goja.FLAG_TRUE, goja.FLAG_TRUE,
			goja.FLAG_TRUE); err != nil {
			return nil, errkind.E(errkind.Invalid, "a variable of JavaScript", err)
		}
	}
	return first, nil
}

// clean removes what a run left, and reports whether the machine may be used again.
func (r *runtime) clean() bool {
	if r.spoiled {
		return false
	}
	global := r.vm.GlobalObject()
	for _, name := range r.given {
		_ = global.Delete(name)
	}
	r.given = r.given[:0]
	return len(global.GetOwnPropertyNames()) == r.globals
}

// thrown drops the machine's own words around what a program threw. Making a text of it may run code of the program,
// which may throw again.
func thrown(err error) (out error) {
	var e *goja.Exception
	if !errors.As(err, &e) || e.Value() == nil {
		return err
	}
	defer func() {
		if recover() != nil {
			out = errors.New("something that has no text was thrown")
		}
	}()
	return errors.New(e.Value().String())
}
