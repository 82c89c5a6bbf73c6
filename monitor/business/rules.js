// What the program of a rule template finds beside event, events and args.
var sensu = {
	// How many of the selected events have a severity: ok, warning, critical, unknown, or non-zero.
	CountBySeverity: function(severity) { return counts[severity] === undefined ? 0 : counts[severity]; },
	PercentageBySeverity: function(severity) {
		return counts.all === 0 ? 0 : sensu.CountBySeverity(severity) * 100 / counts.all;
	},
	NewMetrics: function(metrics) { return metrics; },
};
function finish(made) {
	if (made === undefined || made === null) return "";
	// Programs put numbers where an event has texts.
	var texts = function(meta) {
		if (!meta) return;
		["labels", "annotations"].forEach(function(part) {
			for (var key in meta[part]) meta[part][key] = String(meta[part][key]);
		});
	};
	texts(made.metadata);
	if (made.check) texts(made.check.metadata);
	return JSON.stringify(made);
}
