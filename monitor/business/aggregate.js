var share = function(severity) { return Math.round(sensu.PercentageBySeverity(severity) * 10) / 10; };
var answer = function(status, text) {
	event.check.status = status;
	event.check.output = text + "\n";
	return event;
};
if (events.length === 0) return answer(1, "WARNING: the query selects no events");
event.annotations["io.sensu.bsm.selected_event_count"] = events.length;
if (args.produce_metrics) {
	var at = Math.floor(Date.now() / 1000), points = [];
	var tags = [{name: "service", value: event.entity.name}, {name: "entity", value: event.entity.name},
		{name: "check", value: event.check.name}];
	["percent", "count"].forEach(function(what) {
		["non-zero", "ok", "warning", "critical", "unknown"].forEach(function(severity) {
			points.push({name: what + "_" + severity.replace("-", "_"), timestamp: at, tags: tags,
				value: what === "count" ? sensu.CountBySeverity(severity) : sensu.PercentageBySeverity(severity)});
		});
	});
	event.timestamp = at;
	event.metrics = sensu.NewMetrics({handlers: args.metric_handlers || [], points: points});
	if (args.set_metric_annotations) {
		points.forEach(function(p) { event.annotations["io.sensu.bsm.selected_event_" + p.name] = p.value; });
	}
}
var levels = [[2, "CRITICAL", "critical"], [1, "WARNING", "warning"]];
for (var i = 0; i < levels.length; i++) {
	var least = args[levels[i][2] + "_threshold"];
	if (least && sensu.PercentageBySeverity("ok") <= least) {
		return answer(levels[i][0], levels[i][1] + ": " + share("ok") + "% of " + events.length + " events pass, the limit is " +
			least + "%");
	}
}
for (i = 0; i < levels.length; i++) {
	var most = args[levels[i][2] + "_count"], count = sensu.CountBySeverity(levels[i][2]);
	if (most && count >= most) {
		return answer(levels[i][0], levels[i][1] + ": " + count + " events are " + levels[i][2] + ", the limit is " + most);
	}
}
return answer(0, "OK: " + share("ok") + "% of " + events.length + " events pass");
