"""What the dashboard shows: each row answers one question of whoever is on call.

Replicas of one gateway are joined by what a number means: rates, queues and load add up, of waits
and margins the worst counts, and pods are seen by all replicas alike.
"""

from __future__ import annotations

from charts.tools.panel import (
    POLICY,
    POLICY_NAME,
    SELECTOR,
    Panel,
    Query,
    Row,
    gauge,
    increase,
    quantile,
    rate,
)

ANSWERABLE = 'outcome!="cancelled"'
TURNED_AWAY = 'outcome=~"refused|expired"'
GOOD = 'outcome="good"'
KEPT = 'kept="true"'
EITHER = 'kept=~"true|false"'
REQUESTS = "punctual_requests_total"
PROMISES = "punctual_promises_total"
TIERS = "punctual_tier_requests_total"
TIER = f"{POLICY}, tier"
LENGTH = "group, maximum_tokens"
BETTER_HIGH = ((None, "red"), (0.85, "orange"), (0.95, "green"))
BETTER_LOW = ((None, "green"), (0.05, "orange"), (0.15, "red"))
ANY_IS_BAD = ((None, "green"), (1, "red"))


def _stat(
    title: str,
    description: str,
    unit: str,
    expression: str,
    steps: tuple[tuple[float | None, str], ...] = (),
) -> Panel:
    query = Query(expression, title)
    return Panel(title, description, unit, (query,), "stat", width=4, height=4, steps=steps)


ROWS: tuple[Row, ...] = (
    Row(
        "Is it well?",
        (
            _stat(
                "On time",
                "Requests answered by their deadline, of all whose client stayed.",
                "percentunit",
                f"{rate(REQUESTS, GOOD)} / {rate(REQUESTS, ANSWERABLE)}",
                BETTER_HIGH,
            ),
            _stat(
                "Promises kept",
                "Admitted requests that were answered by their deadline, in the time shown.",
                "percentunit",
                f"{increase(PROMISES, KEPT)} / {increase(PROMISES, EITHER)}",
                ((None, "red"), (0.99, "green")),
            ),
            _stat(
                "Turned away",
                "Requests refused at arrival or dropped from the queue. Alerts at 5 and 15 %.",
                "percentunit",
                f"{rate(REQUESTS, TURNED_AWAY)} / {rate(REQUESTS)}",
                BETTER_LOW,
            ),
            _stat(
                "Late",
                "Admitted requests whose deadline passed, in the time shown.",
                "short",
                increase(REQUESTS, 'outcome="late"'),
                ANY_IS_BAD,
            ),
            _stat(
                "Requests",
                "Requests per second that were decided on.",
                "reqps",
                rate(REQUESTS),
            ),
            _stat(
                "Pods that take work",
                "Of the pods behind the Services of the chosen policies.",
                "short",
                f"sum({gauge('punctual_pods_available', 'max')})",
                ((None, "red"), (1, "green")),
            ),
        ),
    ),
    Row(
        "What becomes of requests?",
        (
            Panel(
                "Requests by how they ended",
                "Requests per second, counted at their end.",
                "reqps",
                (Query(rate(REQUESTS, by="outcome"), "{{outcome}}"),),
                width=12,
                stacked=True,
            ),
            Panel(
                "Turned away, by reason",
                "deadline_unreachable: no room before the deadline. pool_exhausted: no pod. "
                "deadline_exceeded and displaced: admitted, then dropped from the queue.",
                "reqps",
                (Query(rate(REQUESTS, TURNED_AWAY, by="reason"), "{{reason}}"),),
                width=12,
                stacked=True,
            ),
            Panel(
                "On time, by tier",
                "Share of the requests of each tier whose client stayed; where the policy has "
                "tiers. No name: of none.",
                "percentunit",
                (
                    Query(
                        f"{rate(TIERS, GOOD, TIER)} / {rate(TIERS, ANSWERABLE, TIER)}",
                        f"{POLICY_NAME} {{{{tier}}}}",
                    ),
                ),
                width=12,
                maximum=1,
            ),
            Panel(
                "Wrong requests and shorter answers",
                "Requests that are wrong, by status, and answers that were made shorter in place "
                "of a refusal.",
                "reqps",
                (
                    Query(rate("punctual_invalid_requests_total", by="status"), "{{status}}"),
                    Query(rate("punctual_shortened_total"), "shortened"),
                ),
                width=12,
            ),
        ),
    ),
    Row(
        "Are promises kept?",
        (
            Panel(
                "Promises kept and wanted",
                "Share of admitted and answered requests that were on time, and the policy's "
                "confidence.",
                "percentunit",
                (
                    Query(
                        f"{rate(PROMISES, KEPT, POLICY)} / {rate(PROMISES, by=POLICY)}",
                        f"{POLICY_NAME} kept",
                    ),
                    Query(
                        gauge("punctual_promise_confidence", "min"),
                        f"{POLICY_NAME} wanted",
                    ),
                ),
                minimum=None,
                maximum=1,
            ),
            Panel(
                "Actual over predicted time",
                "Of completed answers. Above 1 answers took longer than predicted; the margin has "
                "to cover the 99th percentile.",
                "none",
                (
                    Query(quantile(0.5, "punctual_predicted_ratio"), f"{POLICY_NAME} p50"),
                    Query(quantile(0.99, "punctual_predicted_ratio"), f"{POLICY_NAME} p99"),
                ),
            ),
            Panel(
                "Margin",
                "Predicted times are stretched by this to keep the confidence; the limit is 2.",
                "none",
                (
                    Query(
                        gauge("punctual_margin", "max", f"{POLICY}, of"),
                        f"{POLICY_NAME} {{{{of}}}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "How long are the answers?",
        (
            Panel(
                "Share of max_tokens that answers use",
                "Where lengths are learned, by route, tier and max_tokens: the median, and what "
                "99 of 100 stay below. Where the latter rises, requests with tight deadlines are "
                "refused.",
                "percentunit",
                (
                    Query(
                        gauge(
                            "punctual_length_share",
                            "max",
                            f"{POLICY}, {LENGTH}, quantile",
                            'quantile=~"0.5|0.99"',
                        ),
                        f"{POLICY_NAME} {{{{group}}}} to {{{{maximum_tokens}}}}, {{{{quantile}}}}",
                    ),
                ),
                maximum=1,
            ),
            Panel(
                "Actual over expected length",
                "Tokens of answers, over the mean of what was learned when they were admitted. "
                "A median far from 1 says that habits have changed, and a high 99th percentile "
                "that prompts tell little of the answer.",
                "none",
                (
                    Query(quantile(0.5, "punctual_length_ratio"), f"{POLICY_NAME} p50"),
                    Query(quantile(0.99, "punctual_length_ratio"), f"{POLICY_NAME} p99"),
                ),
            ),
            Panel(
                "Scouts in ten minutes",
                "Answers without a promise, of kinds of requests that are refused for their "
                "length. None: nobody is. Late: such answers are too long for their deadlines. "
                "Good: the kind is being learned, and comes back.",
                "short",
                (
                    Query(
                        f"sum by ({POLICY}, outcome) "
                        f"(increase(punctual_length_scouts_total{{{SELECTOR}}}[10m]))",
                        f"{POLICY_NAME} {{{{outcome}}}}",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "How long do they wait?",
        (
            Panel(
                "Wait: predicted and measured",
                "Predicted: what a request of average size would wait if it came now. Measured: "
                "of requests that started.",
                "s",
                (
                    Query(
                        gauge("punctual_predicted_wait_seconds", "max"), f"{POLICY_NAME} predicted"
                    ),
                    Query(
                        quantile(0.5, "punctual_queue_wait_seconds"), f"{POLICY_NAME} measured p50"
                    ),
                    Query(
                        quantile(0.95, "punctual_queue_wait_seconds"), f"{POLICY_NAME} measured p95"
                    ),
                ),
            ),
            Panel(
                "Service time",
                "From the start on a pod to the end of the answer.",
                "s",
                (
                    Query(quantile(0.5, "punctual_service_seconds"), f"{POLICY_NAME} p50"),
                    Query(quantile(0.95, "punctual_service_seconds"), f"{POLICY_NAME} p95"),
                ),
            ),
            Panel(
                "Time to refuse",
                "From the first byte of a request to its refusal.",
                "s",
                (
                    Query(quantile(0.5, "punctual_refusal_seconds"), f"{POLICY_NAME} p50"),
                    Query(quantile(0.99, "punctual_refusal_seconds"), f"{POLICY_NAME} p99"),
                ),
            ),
        ),
    ),
    Row(
        "Is there enough for what comes?",
        (
            Panel(
                "Offered load and pods",
                "Work that arrives, refused work included, in pods at their best rate, and the "
                "pods that take work. The pool is too small where the load is above the pods.",
                "short",
                (
                    Query(gauge("punctual_offered_load", "sum"), f"{POLICY_NAME} offered"),
                    Query(gauge("punctual_pods_available", "max"), f"{POLICY_NAME} pods"),
                    Query(gauge("punctual_pods_known", "max"), f"{POLICY_NAME} pods known"),
                ),
            ),
            Panel(
                "Requests that wait and run",
                "Now, in all replicas of the gateway.",
                "short",
                (
                    Query(gauge("punctual_queue_requests", "sum"), f"{POLICY_NAME} wait"),
                    Query(gauge("punctual_running_requests", "sum"), f"{POLICY_NAME} run"),
                ),
            ),
            Panel(
                "Work that waits and runs",
                "GPU-seconds that are still to be done.",
                "s",
                (
                    Query(gauge("punctual_queued_gpu_seconds", "sum"), f"{POLICY_NAME} waits"),
                    Query(gauge("punctual_running_gpu_seconds", "sum"), f"{POLICY_NAME} runs"),
                ),
            ),
            Panel(
                "Predicted over measured work",
                "GPU-seconds of completed requests: at 2 the pool is sized for twice the work that "
                "comes.",
                "none",
                (Query(gauge("punctual_prediction_ratio", "max"), POLICY_NAME),),
            ),
            Panel(
                "Work for nobody",
                "GPU-seconds per second spent on answers that nobody got in full, and left out "
                "because they were stopped.",
                "none",
                (
                    Query(
                        rate("punctual_wasted_gpu_seconds_total", by="outcome"),
                        "wasted, {{outcome}}",
                    ),
                    Query(
                        rate("punctual_saved_gpu_seconds_total", by="outcome"),
                        "saved, {{outcome}}",
                    ),
                ),
            ),
            Panel(
                "Would be refused",
                "Requests that were admitted only because of enforcement: Observe, by reason.",
                "reqps",
                (Query(rate("punctual_would_refuse_total", by="reason"), "{{reason}}"),),
                stacked=True,
            ),
        ),
    ),
    Row(
        "Which pod is it?",
        (
            Panel(
                "Requests on each pod",
                "Of these gateways, and of others.",
                "short",
                (
                    Query(gauge("punctual_pod_running", "sum", "backend"), "{{backend}}"),
                    Query(gauge("punctual_pod_slots", "max", "backend"), "{{backend}} slots"),
                ),
            ),
            Panel(
                "Speed of each pod",
                "Measured over published service times: at 2 a pod takes twice as long as it says.",
                "none",
                (Query(gauge("punctual_pod_speed_ratio", "max", "backend"), "{{backend}}"),),
            ),
            Panel(
                "Age of each pod's state",
                "Since a gateway last heard from it. Without an answer for three polls it gets no "
                "new work.",
                "s",
                (Query(gauge("punctual_pod_state_age_seconds", "max", "backend"), "{{backend}}"),),
            ),
            Panel(
                "Faults and retries",
                "Requests that a pod broke off, sent back undone, or that were sent again.",
                "reqps",
                (
                    Query(rate("punctual_upstream_faults_total", by="fault"), "{{fault}}"),
                    Query(rate("punctual_declined_total", by="code"), "sent back, {{code}}"),
                    Query(rate("punctual_retries_total"), "sent again"),
                ),
            ),
            Panel(
                "Pods without work",
                "Pods of the Service that no gateway can use: each line is one pod.",
                "short",
                (
                    Query(
                        f"{gauge('punctual_pod_available', 'max', 'backend')} == 0",
                        "{{backend}}",
                    ),
                ),
            ),
            Panel(
                "Key-value memory of each pod",
                "Share of its tokens that is not reserved, for pods that tell.",
                "percentunit",
                (
                    Query(
                        f"{gauge('punctual_pod_free_memory_tokens', 'min', 'backend')}"
                        f" / {gauge('punctual_pod_memory_tokens', 'min', 'backend')}",
                        "{{backend}}",
                    ),
                ),
                maximum=1,
            ),
        ),
    ),
    Row(
        "Is it under control?",
        (
            Panel(
                "Policy in force",
                "Generation by gateway replica: lines apart mean that a change has not reached "
                "all.",
                "none",
                (
                    Query(
                        gauge("punctual_policy_generation", "max", "punctual_dev_policy, pod"),
                        f"{POLICY_NAME} {{{{pod}}}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Replicas that hear each other",
                "Others that each replica shares its queue with: one less than there are.",
                "short",
                (
                    Query(
                        gauge("punctual_peers", "max", "punctual_dev_policy, pod"),
                        f"{POLICY_NAME} {{{{pod}}}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Conditions that are not True",
                "Of the policies, as kubectl describe shows them.",
                "none",
                (
                    Query(
                        "max by (namespace, policy, type, reason) (punctual_operator_condition{"
                        'namespace=~"$namespace", policy=~"$policy", status!="True", '
                        'reason!="NotConfigured"})',
                        "{{policy}} {{type}}: {{reason}}",
                    ),
                ),
                width=6,
            ),
            Panel(
                "Operator and metrics adapter",
                "Reconciles that failed, gateway replicas that do not answer the adapter, and its "
                "answers that are errors.",
                "short",
                (
                    Query(
                        "sum(rate(punctual_operator_reconciles_total"
                        '{result="error"}[$__rate_interval]))',
                        "failed reconciles per second",
                    ),
                    Query("max(punctual_adapter_unread_gateways)", "unread gateways"),
                    Query(
                        'sum by (status) (rate(punctual_adapter_answers_total{status=~"5.."}'
                        "[$__rate_interval]))",
                        "adapter answers {{status}} per second",
                    ),
                ),
                width=6,
            ),
        ),
    ),
)
