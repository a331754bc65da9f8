# Included by the root Makefile: images, chart, manifests.
IMAGES ?= operator gateway model-server lab
# Where images come from and what they are called; PUSH=1 also pushes them.
BASE ?= python:3.13-slim
REGISTRY ?= punctual
TAG ?= 0.1.0
ENGINE ?= sim

##@ Package it

.PHONY: images helm prometheus chart package e2e

images: ## Build the images (IMAGES, BASE, REGISTRY, TAG, ENGINE=sim|cpu|cuda, PUSH=1), and hold their sizes against the budgets
	IMAGES="$(IMAGES)" BASE=$(BASE) REGISTRY=$(REGISTRY) TAG=$(TAG) ENGINE=$(ENGINE) PUSH=$(PUSH) charts/tools/images

helm: ## Put the pinned Helm into the cache, where it is missing
	@charts/tools/build-helm

prometheus: ## Put Prometheus, for the tests of alerts and dashboards, into the cache, where it is missing
	@charts/tools/get-prometheus

chart: .venv helm ## Make the chart's generated files and manifests/install.yaml anew
	$(BIN)/python -m charts.tools.generate

package: .venv helm ## Pack the chart into reports/
	$(BIN)/python -m charts.tools.generate --check
	$${PUNCTUAL_HELM:-$${PUNCTUAL_CACHE:-$$HOME/.cache/punctual}/helm/$(HELM_VERSION)/helm} package charts/punctual -d reports

e2e: .venv helm ## Test the product on kind, or on the cluster of KUBECONFIG (SUITE=default|autoscale|all, KEEP=1 keeps the cluster)
	SUITE=$(SUITE) tests/e2e/run $(ARGS)

include charts/tools/versions
