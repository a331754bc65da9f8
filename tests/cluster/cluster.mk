# Included by the root Makefile. Starting and stopping needs no package, so no .venv either.
TESTCLUSTER = PYTHONPATH=tests/cluster/tools $(PYTHON) -m testcluster

##@ Test clusters (tests/cluster/README.md, tests/kind/README.md)

.PHONY: cluster-packages cluster-build cluster-up cluster-down kind-packages kind-up kind-prove kind-down

cluster-packages: ## Install the Debian packages that the control plane needs (root)
	tests/cluster/tools/packages control-plane

cluster-build: ## Build a Kubernetes control plane into the cache, where it is missing
	tests/cluster/tools/build control-plane

cluster-up: cluster-build ## Start a control plane that stays, and print its KUBECONFIG
	@$(TESTCLUSTER) up

cluster-down: ## Stop the control plane that cluster-up started
	@$(TESTCLUSTER) down

kind-packages: ## Install the Debian packages that kind needs without a registry (root)
	tests/cluster/tools/packages kind

kind-up: ## Create a kind cluster, and print its KUBECONFIG
	@tests/kind/up

kind-prove: ## Check that the kind cluster does what tests expect of it
	@tests/kind/prove

kind-down: ## Delete the kind cluster, and end the docker daemon that kind-up started for it
	@tests/kind/down
