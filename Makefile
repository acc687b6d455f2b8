# Build, try, test and measure onesweep. `make` alone says what there is.

CARGO ?= cargo
DIR ?= /usr/share
PREFIX ?= /usr/local
# What `make test-long` gives each property; the short set uses proptest's own number.
LONG_PROPTEST_CASES ?= 20000

# rustup's own place comes first, as in a shell that has read its env: a shell older than rustup hasn't, and the system's
# Rust may be too old.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH):/usr/local/sbin:/usr/sbin:/sbin

# Some tests interrupt what they run, which a shell that began this in the background has told to take no notice.
TEST := env --default-signal=INT,HUP $(CARGO) test

# What building runs, and the Debian packages that hold it.
BUILD_TOOLS := cc:build-essential

# The same for the tests and benches.
TOOLS := $(BUILD_TOOLS) python3:python3 ip:iproute2 setfattr:attr setfacl:acl mkfs.xfs:xfsprogs xfs_fsr:xfsprogs mkfs.btrfs:btrfs-progs mkfs.ext4:e2fsprogs strace:strace \
	mkntfs:ntfs-3g ntfs-3g:ntfs-3g e4defrag:e2fsprogs bsdtar:libarchive-tools losetup:mount mount:mount \
	fincore:util-linux-extra setpriv:util-linux tar:tar time:time git:git groff:groff-base zstd:zstd \
	rsync:rsync xargs:findutils script:bsdutils systemd-analyze:systemd unshare:util-linux sfdisk:fdisk partx:util-linux clamd:clamav-daemon clamdscan:clamdscan faketime:faketime \
	valgrind:valgrind musl-gcc:musl-tools pkg-config:pkg-config fio:fio restic:restic borg:borgbackup rclone:rclone systemd-nspawn:systemd-container

# What the page of `onesweep serve --http` is built and tested with.
WEB_BUILD_TOOLS := node:nodejs npm:npm
WEB_TOOLS := $(WEB_BUILD_TOOLS) chromium:chromium mkfs.ext4:e2fsprogs strace:strace mount:mount

# The engines that the tests of crates/peer hold below a server of blocks.
ENGINE_TOOLS := $(BUILD_TOOLS) redis-server:redis-server
# The program and the tests, so that both share what is built.
ENGINE_FEATURES := onesweep-peer/engines,onesweep-cli/engines
YARA_FEATURES := onesweep-peer/yara,onesweep-cli/yara

# The programs that `make bench` measures beside ours.
PEERS := rsync:rsync rmlint:rmlint bsdtar:libarchive-tools mkfs.ntfs:ntfs-3g find:findutils gdu:gdu duc:duc-nox \
	zip:zip restic:restic borg:borgbackup clamscan:clamav clamdscan:clamdscan fsfreeze:util-linux dumpe2fs:e2fsprogs ip:iproute2 tc:iproute2 nsenter:util-linux taskset:util-linux
# Those of crates.io, with their versions.
FCLONES ?= 0.35
DUA ?= 2.46
DISKUS ?= 0.8
# For how long, or how often, `make fuzz` runs each target.
FUZZ ?= -max_total_time=60
CARGO_FUZZ ?= 0.13
# What `make pjdfstest` asks of a view.
PJDFSTEST ?= 0.2
# By which the tests read what `onesweep export` writes.
DUCKDB ?= 1.5
# What plays S3 in the tests of engines, with its version.
MOTO ?= 5.2.5
# What packs the .deb, and what makes a book of the guide.
CARGO_DEB ?= 3.8
MDBOOK ?= 0.5
DEB_BUILD_TOOLS := $(BUILD_TOOLS) dpkg-shlibdeps:dpkg-dev
DEB_TOOLS := $(DEB_BUILD_TOOLS) debootstrap:debootstrap lintian:lintian findmnt:util-linux unshare:util-linux systemd-nspawn:systemd-container
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What makes and starts a virtual machine with Debian's own kernel, and what is installed in it: all that the tests run.
VM_TOOLS := $(BUILD_TOOLS) qemu-system-x86_64:qemu-system-x86 debootstrap:debootstrap cpio:cpio findmnt:util-linux unshare:util-linux mkfs.ext4:e2fsprogs strace:strace git:git
VM_PACKAGES := $(sort $(foreach tool,$(TOOLS),$(lastword $(subst :, ,$(tool)))))
VM := $(abspath $(TARGET))/vm
# What of the tests is run in it, in the words of `cargo test`.
VM_TESTS ?= --workspace --test real -- view run_program peer
# The version of the interface of C, and where its library is linked.
CAPI_VERSION := 1.1.0
CAPI := $(TARGET)/capi
# An environment of Python's with what builds and tests crates/python, and the package as it is now.
PYTHON_ENV := $(abspath $(TARGET))/tools/python
# How the wheel is built, and where it comes to.
WHEEL_PROFILE ?= release
WHEELS ?= $(abspath $(TARGET))/wheels
WHEEL_ENV := $(abspath $(TARGET))/tools/wheel
WHEEL_PACKAGES := 'maturin>=1.12,<2'
PYTHON_TEST_PACKAGES := $(WHEEL_PACKAGES) 'mypy>=1.11' 'pillow>=11' 'pyarrow>=14' 'pytest>=8' 'webdataset>=1'
# What takes its tables; not made for free-threaded Pythons.
PYTHON_TABLE_PACKAGES := 'duckdb==$(DUCKDB).*' 'polars>=1'
RAY_ENV := $(abspath $(TARGET))/tools/ray
TORCH_PYTHON ?= /usr/bin/python3
# The program that writes what the tests read.
PYTHON_TEST_ENV := ONESWEEP=$(abspath $(TARGET))/debug/onesweep

help:
	@echo 'make deps       install what building and testing need (apt-get, as root or by sudo)'
	@echo 'make build      build the program, release/onesweep in the target directory; FEATURES=engines adds Redis and S3, FEATURES=yara YARA-X (Rust 1.91)'
	@echo 'make install    the program, and onesweep serve, guard and peer serve as services of systemd (as root; PREFIX, now $(PREFIX), and DESTDIR)'
	@echo 'make uninstall  takes away what make install and make install-capi have put there; settings stay'
	@echo 'make capi       the library for C, target/capi/libonesweep.so; make install-capi installs it with onesweep.h'
	@echo 'make capi-asan-test  its tests, with a library that has the address sanitizer itself; a part of make test-long'
	@echo 'make deb        the program as a package of Debian, in target/deb; make deb-test installs, upgrades and purges one (root)'
	@echo 'make wheel      the package for Python, in target/wheels'
	@echo 'make python-test  its tests; a part of make test'
	@echo 'make python-bench  small files in memory: the package beside a plain loop, on one processor'
	@echo 'make python-disk-bench  the emulated disk: the package beside the Rust reader (root)'
	@echo 'make torch-test ray-test  those with PyTorch and with Ray; parts of make test-long'
	@echo 'make free-threaded-test  its tests by a free-threaded Python that is there, FREE_THREADED=python3.14t'
	@echo 'make try        sweep DIR (now $(DIR)) into OUT (target/try.tar), and show what other orders would cost'
	@echo 'make test       all tests; as root those on real file systems too'
	@echo 'make web        build the page of `onesweep serve --http`, web/dist, from its sources (npm)'
	@echo 'make web-test   is that page what its sources build, and does it work in Chromium; a part of make test'
	@echo 'make engines-test  blocks in a real Redis, a cluster of three, and S3 (moto); a part of make test-long'
	@echo 'make yara-test  onesweep scan and guard with YARA-X built in; a part of make test-long'
	@echo 'make features-lint  clippy of what is only compiled when it is asked for: engines, YARA-X, each alone; a part of make test-long'
	@echo 'make test-long  the same with larger trees, more rounds and more cases'
	@echo 'make pjdfstest  what POSIX says of files, asked of onesweep view --read-write (root); a part of make test-long'
	@echo 'make install-test  cargo install and the wheel, each into a place of its own; a part of make test-long'
	@echo 'make vm-test    VM_TESTS, as for cargo test, by the kernel of Debian in a virtual machine (root)'
	@echo 'make pressure-test  peer mount where memory is short, there, in control groups of version 1 and 2; a part of make test-long'
	@echo 'make bench      measure beside GNU tar (root), and write docs/BENCHMARKS.md and the table of the README'
	@echo 'make bench-quick  a small part of it (root), whose ratios must not fall below those of bench/baseline.json'
	@echo 'make fuzz       parsers of disk tables with bytes that nobody has looked at, a minute each (nightly Rust, root)'
	@echo 'make book       the guide, with a page for each task and each command, in target/book/html'
	@echo 'make doc        the documentation of the crates'
	@echo 'make clean      remove what was built, kept images too'

deps: $(TARGET)/tools/duckdb/$(DUCKDB) $(PYTHON_ENV)/made-with-tables
	@.ci/deps $(TOOLS)

# Where Python has no environments of its own, its package is missing; no program is called by that name.
$(TARGET)/tools/duckdb/$(DUCKDB):
	@.ci/deps python3:python3
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/deps ensurepip:python3-venv
	python3 -m venv --clear $(TARGET)/tools/duckdb
	$(TARGET)/tools/duckdb/bin/pip install --quiet --disable-pip-version-check 'duckdb==$(DUCKDB).*'
	@touch $@

$(RAY_ENV)/made: $(PYTHON_ENV)/made-with-tables
	python3 -m venv --clear $(RAY_ENV)
	$(RAY_ENV)/bin/pip install --quiet --disable-pip-version-check 'ray[data]>=2.60,<2.64' 'pytest>=8'
	@touch $@

$(PYTHON_ENV)/made-with-tables: crates/python/pyproject.toml
	@.ci/deps python3:python3
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/deps ensurepip:python3-venv
	python3 -m venv --clear $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/pip install --quiet --disable-pip-version-check $(PYTHON_TEST_PACKAGES) $(PYTHON_TABLE_PACKAGES)
	@touch $@

build-deps:
	@.ci/deps $(BUILD_TOOLS)

build: build-deps
	$(CARGO) build --release --bin onesweep $(if $(FEATURES),--features '$(FEATURES)')

# Settings that are there stay as they are. Nothing is started.
install: build
	install -Dm755 $(TARGET)/release/onesweep $(DESTDIR)$(PREFIX)/bin/onesweep
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(PREFIX)/lib/sysusers.d
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' packaging/onesweep-serve.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/onesweep-serve.service
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' packaging/onesweep-guard@.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/onesweep-guard@.service
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' packaging/onesweep-peer@.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/onesweep-peer@.service
	install -m644 packaging/onesweep.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/onesweep.conf
	install -Dm644 packaging/serve.toml $(DESTDIR)$(PREFIX)/share/doc/onesweep/serve.toml
	install -Dm644 packaging/config.toml $(DESTDIR)$(PREFIX)/share/doc/onesweep/config.toml
	install -Dm644 packaging/summaries.toml $(DESTDIR)$(PREFIX)/share/doc/onesweep/summaries.toml
	install -m644 LICENSE-MIT LICENSE-APACHE $(DESTDIR)$(PREFIX)/share/doc/onesweep
	packaging/licences --package onesweep-cli $(if $(FEATURES),--features '$(FEATURES)') > $(DESTDIR)$(PREFIX)/share/doc/onesweep/LICENSE-CRATES
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)/etc/onesweep
	$(TARGET)/release/onesweep man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TARGET)/release/onesweep completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/onesweep
	$(TARGET)/release/onesweep completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_onesweep
	$(TARGET)/release/onesweep completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/onesweep.fish
	test -n '$(DESTDIR)' || { systemd-sysusers && systemctl daemon-reload; } 2>/dev/null || true

# What `make install` and `make install-capi` have put there, with the same PREFIX and DESTDIR. Settings, keys and what was tracked stay, and so does the user.
uninstall:
	test -n '$(DESTDIR)' || { systemctl stop onesweep-serve.service 'onesweep-guard@*' 'onesweep-peer@*'; \
	    systemctl disable onesweep-serve.service onesweep-guard@.service onesweep-peer@.service; } 2>/dev/null || true
	cd $(DESTDIR)$(PREFIX)/ && rm -f bin/onesweep lib/systemd/system/onesweep-serve.service lib/systemd/system/onesweep-guard@.service \
	    lib/systemd/system/onesweep-peer@.service lib/sysusers.d/onesweep.conf share/man/man1/onesweep.1 share/man/man1/onesweep-*.1 \
	    share/bash-completion/completions/onesweep share/zsh/site-functions/_onesweep share/fish/vendor_completions.d/onesweep.fish \
	    include/onesweep.h lib/libonesweep.so lib/libonesweep.so.* lib/pkgconfig/onesweep.pc
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/onesweep $(DESTDIR)$(PREFIX)/share/doc/onesweep-capi
	test -n '$(DESTDIR)' || { systemctl daemon-reload; ldconfig; } 2>/dev/null || true

# Compiled in a folder that goes afterwards: what they share with the workspace has other features there.
$(TARGET)/tools/bin/cargo-deb: | build-deps
	env -u CARGO_TARGET_DIR $(CARGO) install cargo-deb --version '~$(CARGO_DEB)' --no-default-features --features lzma --locked --root $(TARGET)/tools

$(TARGET)/tools/bin/mdbook: | build-deps
	env -u CARGO_TARGET_DIR $(CARGO) install mdbook --version '~$(MDBOOK)' --no-default-features --features search --locked --root $(TARGET)/tools

deb-deps: $(TARGET)/tools/bin/cargo-deb
	@.ci/deps $(DEB_BUILD_TOOLS)

deb: deb-deps build
	PATH=$(abspath $(TARGET))/tools/bin:$$PATH packaging/deb/build $(TARGET)/release/onesweep $(TARGET)/deb

# Without optimisation, as all tests: only what is around the program is looked at.
deb-test: deb-deps
	@.ci/deps $(DEB_TOOLS)
	$(CARGO) build --bin onesweep
	PATH=$(abspath $(TARGET))/tools/bin:$$PATH packaging/deb/test $(TARGET)/debug/onesweep $(TARGET)/deb-test

capi: build-deps
	$(CARGO) build --release --package onesweep-capi --lib
	crates/capi/link $(TARGET)/release/libonesweep_capi.a $(CAPI)

install-capi: capi
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include
	install -m644 crates/capi/include/onesweep.h $(DESTDIR)$(PREFIX)/include/onesweep.h
	install -d $(DESTDIR)$(PREFIX)/share/doc/onesweep-capi
	install -m644 LICENSE-MIT LICENSE-APACHE $(DESTDIR)$(PREFIX)/share/doc/onesweep-capi
	packaging/licences --package onesweep-capi > $(DESTDIR)$(PREFIX)/share/doc/onesweep-capi/LICENSE-CRATES
	install -m755 $(CAPI)/libonesweep.so.$(CAPI_VERSION) $(DESTDIR)$(PREFIX)/lib/
	ln -sf libonesweep.so.$(CAPI_VERSION) $(DESTDIR)$(PREFIX)/lib/libonesweep.so.1
	ln -sf libonesweep.so.1 $(DESTDIR)$(PREFIX)/lib/libonesweep.so
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(CAPI_VERSION)|' crates/capi/onesweep.pc.in > $(DESTDIR)$(PREFIX)/lib/pkgconfig/onesweep.pc
	test -n '$(DESTDIR)' || ldconfig

$(WHEEL_ENV)/made:
	@.ci/deps python3:python3
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/deps ensurepip:python3-venv
	python3 -m venv --clear $(WHEEL_ENV)
	$(WHEEL_ENV)/bin/pip install --quiet --disable-pip-version-check $(WHEEL_PACKAGES)
	@touch $@

wheel python: build-deps $(WHEEL_ENV)/made
	packaging/licences --package onesweep-python --features extension > crates/python/LICENSE-CRATES
	$(WHEEL_ENV)/bin/maturin build --manifest-path crates/python/Cargo.toml --profile $(WHEEL_PROFILE) --out $(WHEELS)

# Small files in memory beside a plain loop, and the kernel's calls alone. PYTHON_BENCH may ask for more or less: --files, --pairs.
python-bench: wheel
	python3 -m venv --clear $(TARGET)/tools/python-bench
	$(TARGET)/tools/python-bench/bin/pip install --quiet --disable-pip-version-check --no-index --find-links $(TARGET)/wheels onesweep
	cc -O2 -o $(TARGET)/tools/python-bench/calls crates/python/bench/calls.c
	$(TARGET)/tools/python-bench/bin/python crates/python/bench/cached.py --calls $(abspath $(TARGET))/tools/python-bench/calls $(PYTHON_BENCH)

# The emulated disk, as root: the package beside the Rust reader, by modelled time, so that it matters little how busy the machine is, or how
# fast the programs are: PYTHON_DISK_PROFILE=dev builds them sooner. The image is aged once, which takes minutes; another one may be named.
PYTHON_DISK_IMAGE ?= $(TARGET)/bench/random-ext4.img
PYTHON_DISK_ROUNDS ?= 3
PYTHON_DISK_PROFILE ?= release
PYTHON_DISK_PROGRAMS = $(TARGET)/$(if $(filter dev,$(PYTHON_DISK_PROFILE)),debug,$(PYTHON_DISK_PROFILE))
python-disk-bench:
	$(MAKE) wheel WHEEL_PROFILE=$(PYTHON_DISK_PROFILE) WHEELS=$(abspath $(TARGET))/python-disk-bench
	$(CARGO) build --profile $(PYTHON_DISK_PROFILE) --bin onesweep --bin onesweep-lab
	python3 -m venv --clear $(TARGET)/tools/python-bench
	$(TARGET)/tools/python-bench/bin/pip install --quiet --disable-pip-version-check --no-index --find-links $(TARGET)/python-disk-bench onesweep
	@mkdir -p $(dir $(PYTHON_DISK_IMAGE))
	test -e $(PYTHON_DISK_IMAGE) || $(PYTHON_DISK_PROGRAMS)/onesweep-lab age random --out $(PYTHON_DISK_IMAGE)
	PYTHON=$(TARGET)/tools/python-bench/bin/python crates/python/bench/disk $(PYTHON_DISK_PROGRAMS)/onesweep-lab \
	    $(PYTHON_DISK_PROGRAMS)/onesweep $(PYTHON_DISK_IMAGE) $(PYTHON_DISK_ROUNDS)

# Without optimisation, as all tests: a wheel takes minutes.
python-develop: $(PYTHON_ENV)/made-with-tables
	VIRTUAL_ENV=$(PYTHON_ENV) $(PYTHON_ENV)/bin/maturin develop --quiet --manifest-path crates/python/Cargo.toml --profile dev
	$(CARGO) build --bin onesweep

python-test: python-develop
	$(PYTHON_TEST_ENV) $(PYTHON_ENV)/bin/python -m pytest --basetemp $(abspath $(TARGET))/python-test crates/python/tests

# By a free-threaded Python of the caller's, which neither Debian nor PyPI has: the lock stays off when the module is there, and all tests pass.
FREE_THREADED ?= python3.14t
FREE_THREADED_ENV := $(abspath $(TARGET))/tools/free-threaded
free-threaded-test:
	@$(FREE_THREADED) -c 'import sysconfig; raise SystemExit(not sysconfig.get_config_var("Py_GIL_DISABLED"))' || \
	    { echo '$(FREE_THREADED) is not there, or not free-threaded: name one, FREE_THREADED=PATH' >&2; exit 1; }
	$(FREE_THREADED) -m venv --clear $(FREE_THREADED_ENV)
	$(FREE_THREADED_ENV)/bin/pip install --quiet --disable-pip-version-check $(PYTHON_TEST_PACKAGES)
	VIRTUAL_ENV=$(FREE_THREADED_ENV) $(FREE_THREADED_ENV)/bin/maturin develop --quiet --manifest-path crates/python/Cargo.toml --profile dev
	$(FREE_THREADED_ENV)/bin/python -c 'import sys, onesweep; raise SystemExit(sys._is_gil_enabled())'
	$(CARGO) build --bin onesweep
	$(PYTHON_TEST_ENV) $(FREE_THREADED_ENV)/bin/python -m pytest --basetemp $(abspath $(TARGET))/free-threaded-test crates/python/tests

# By the PyTorch of Debian, which is for the processor alone (150 MB): that of PyPI brings 2 GB of libraries for graphics cards.
# TORCH_PYTHON is a Python that has another one, with pytest; wids is read from the environment of the other tests.
torch-test: python-develop
	@$(TORCH_PYTHON) -c 'import pytest, torch' 2>/dev/null || .ci/deps 'torch of $(TORCH_PYTHON)':python3-torch 'pytest of it':python3-pytest
	$(PYTHON_ENV)/bin/pip install --quiet --disable-pip-version-check --upgrade --no-deps --target $(abspath $(TARGET))/tools/wids 'wids>=0.1.11' 'braceexpand>=0.1.7'
	$(PYTHON_TEST_ENV) PYTHONPATH=$(abspath crates/python/python):$(abspath $(TARGET))/tools/wids \
	    $(TORCH_PYTHON) -m pytest -W ignore -p no:cacheprovider --basetemp $(abspath $(TARGET))/torch-test crates/python/tests/with_torch

# A head and two nodes of Ray on this machine, as root: each node has its own mounts. Ray takes 600 MB and some minutes.
ray-test: python-develop $(RAY_ENV)/made
	@.ci/deps clamd:clamav-daemon
	$(PYTHON_TEST_ENV) PYTHONPATH=$(abspath crates/python/python) $(RAY_ENV)/bin/python -m pytest -W ignore -p no:cacheprovider -p no:logging \
	    --basetemp $(abspath $(TARGET))/ray-test crates/python/tests/with_ray

# The programs of its tests with a library that has the address sanitizer itself, which is rustc's: the stable one brings it, but takes its option
# only when it's told to be a nightly one. Contents of files get memory of their own there, none that was used before. The sanitizer doesn't see what the kernel writes for io_uring, so they run without it, too.
SANITIZED_HOST = $(shell rustc -vV | sed -n 's/^host: //p')
SANITIZED := $(abspath $(TARGET))/capi-sanitized
capi-asan-test:
	@.ci/deps $(TOOLS)
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address --cfg onesweep_fresh_memory' CARGO_TARGET_DIR=$(SANITIZED) \
	    $(CARGO) build --package onesweep-capi --lib --target $(SANITIZED_HOST)
	@for hidden in '' io_uring; do \
	    ONESWEEP_HIDE=$$hidden ONESWEEP_CAPI_ARCHIVE=$(SANITIZED)/$(SANITIZED_HOST)/debug/libonesweep_capi.a \
	        ONESWEEP_CAPI_SANITIZER=$$(echo "$$(rustc --print sysroot)"/lib/rustlib/$(SANITIZED_HOST)/lib/librustc-*_rt.asan.a) \
	        $(TEST) --package onesweep-capi --test interface -- programs:: || exit; \
	done

# include/onesweep.h of crates/capi, of its source; a test compares them.
header:
	ONESWEEP_WRITE_HEADER=1 $(CARGO) test --package onesweep-capi --test interface -- the_header_is_that_of_the_source

try: build
	@CARGO='$(CARGO)' bench/try "$(DIR)"

test: deps
	$(TEST) --no-fail-fast --workspace --all-targets
	$(TEST) --workspace --doc
	$(MAKE) python-test
	$(MAKE) web-test

test-long: deps
	@echo "commit $$(git describe --always --dirty), seed $${ONESWEEP_TEST_SEED:-1}, $(LONG_PROPTEST_CASES) cases for each property"
	ONESWEEP_TEST_LONG=1 PROPTEST_CASES=$(LONG_PROPTEST_CASES) $(TEST) --profile long --no-fail-fast --workspace --all-targets
	$(TEST) --workspace --doc
	$(MAKE) capi-asan-test
	$(MAKE) python-test
	$(MAKE) torch-test
	$(MAKE) ray-test
	ONESWEEP_TEST_LONG=1 $(MAKE) web-test
	$(MAKE) features-lint
	$(MAKE) engines-test
	$(MAKE) yara-test
	$(MAKE) pjdfstest
	$(MAKE) install-test
	$(MAKE) deb-test
	$(MAKE) pressure-test
	$(MAKE) book

# With their tests; .ci/run looks over what is always compiled.
features-lint:
	@.ci/deps $(BUILD_TOOLS)
	$(CARGO) clippy --workspace --features $(ENGINE_FEATURES) --all-targets -- -D warnings
	$(CARGO) clippy --workspace --features $(YARA_FEATURES) --all-targets -- -D warnings

# Their clients are some hundred crates, which nothing else needs.
engines-test: $(TARGET)/tools/moto/$(MOTO)
	@.ci/deps $(ENGINE_TOOLS)
	$(CARGO) build --workspace --features $(ENGINE_FEATURES) --bin onesweep
	ONESWEEP_MOTO=$(abspath $(TARGET))/tools/moto/bin/moto_server ONESWEEP_PROGRAM=$(abspath $(TARGET))/debug/onesweep \
	    $(CARGO) test --workspace --features $(ENGINE_FEATURES) --test engines

# It brings a compiler, which takes minutes to build.
yara-test:
	@.ci/deps $(TOOLS)
	$(CARGO) test --package onesweep-peer --features yara --lib -- scan::yara
	$(TEST) --package onesweep-cli --features yara --test peer -- rules

$(TARGET)/tools/moto/$(MOTO):
	@.ci/deps python3:python3
	@python3 -c 'import ensurepip, venv' 2>/dev/null || .ci/deps ensurepip:python3-venv
	python3 -m venv --clear $(TARGET)/tools/moto
	$(TARGET)/tools/moto/bin/pip install --quiet --disable-pip-version-check 'moto[server]==$(MOTO)'
	@touch $@

pjdfstest: deps
	@test -x $(TARGET)/tools/bin/pjdfstest || $(CARGO) install pjdfstest --version '^$(PJDFSTEST)' --locked --root $(TARGET)/tools
	$(CARGO) build --bin onesweep
	for fs in ext4 xfs btrfs; do crates/cli/tests/pjdfstest/run $(TARGET)/debug/onesweep $(TARGET)/tools/bin/pjdfstest $$fs || exit; done

# What a user would call, without optimisation: `cargo install`, `make wheel` and `pip install .`.
install-test: $(PYTHON_ENV)/made-with-tables
	rm -rf $(TARGET)/install-test
	$(CARGO) install --debug --locked --path crates/cli --root $(TARGET)/install-test/program
	$(MAKE) wheel WHEEL_PROFILE=dev WHEELS=$(abspath $(TARGET))/install-test/wheels
	crates/python/tests/installed/run $(TARGET)/install-test

vm:
	@.ci/deps $(VM_TOOLS)
	ONESWEEP_VM_PACKAGES='$(VM_PACKAGES)' .ci/vm/make $(VM)

IN_VM := ONESWEEP_VM=$(VM) $(CARGO) test --config 'target."cfg(all())".runner="$(abspath .ci/vm/run)"'

vm-test: vm
	$(IN_VM) $(VM_TESTS)

# Version 2 has no mount that is refused.
pressure-test: vm
	ONESWEEP_VM_STRICT=1 ONESWEEP_VM_CGROUPS=1 $(IN_VM) --workspace --test real -- peer_pressure
	ONESWEEP_VM_STRICT=1 ONESWEEP_VM_CGROUPS=2 $(IN_VM) --workspace --test real -- peer_pressure::dirty_pages

web/node_modules: web/package.json web/package-lock.json
	@.ci/deps $(WEB_BUILD_TOOLS)
	cd web && npm ci
	@touch $@

web: web/node_modules
	cd web && npm run types && npm run build

web-test: web/node_modules
	@.ci/deps $(WEB_TOOLS)
	rm -rf $(TARGET)/web
	cd web && npm run types && node build.mjs $(abspath $(TARGET))/web
	diff -r web/dist $(TARGET)/web || { echo 'web/dist is not what its sources build: run make web' >&2; exit 1; }
	$(CARGO) build --bin onesweep
	cd web && CARGO_TARGET_DIR=$(abspath $(TARGET)) npm test

# Measuring takes days. What there is lies packed in bench/results: it goes on from there on any machine, and anybody can look.
# Whatever fails, what was measured is kept and shown.
bench-resume:
	@mkdir -p $(TARGET)/bench
	@for packed in bench/results/*.json.zst; do \
	    to="$(TARGET)/bench/$$(basename "$${packed%.zst}")"; test -e "$$to" || ! test -e "$$packed" || zstd -dq "$$packed" -o "$$to"; done

bench-keep:
	@mkdir -p bench/results
	@for json in $(TARGET)/bench/*.json; do zstd -q -19 -f "$$json" -o "bench/results/$$(basename "$$json").zst"; done

bench: deps peers bench-resume
	$(CARGO) bench --package onesweep-cli --bench against_tar
	ONESWEEP_COMMIT=$$(git describe --always --dirty) $(CARGO) build --release --bin onesweep --bin onesweep-lab
	@failed=; for part in sweep du dfs defrag peer; do \
	    $(TARGET)/release/onesweep-lab bench $$part --out $(TARGET)/bench || failed="$$failed $$part"; \
	done; echo "$$failed" > $(TARGET)/bench/failed
	$(MAKE) bench-keep
	$(TARGET)/release/onesweep-lab bench report $(TARGET)/bench
	bench/readme-table
	@read -r failed < $(TARGET)/bench/failed; test -z "$$failed" || { echo "not all could be measured: $$failed" >&2; exit 1; }

# With the programs that `make test` has built: the disk's time is modelled, so it matters little how fast they are.
bench-quick: deps
	$(CARGO) build --bin onesweep --bin onesweep-lab
	$(TARGET)/debug/onesweep-lab bench sweep --quick --out $(TARGET)/bench-quick $(BENCH)

peers:
	@.ci/deps $(PEERS)
	@test -x $(TARGET)/tools/bin/fclones || $(CARGO) install fclones --version '^$(FCLONES)' --locked --root $(TARGET)/tools
	@test -x $(TARGET)/tools/bin/dua || $(CARGO) install dua-cli --version '^$(DUA)' --no-default-features --locked --root $(TARGET)/tools
	@test -x $(TARGET)/tools/bin/diskus || $(CARGO) install diskus --version '^$(DISKUS)' --locked --root $(TARGET)/tools

# Images for the fuzzer to begin with are made once; `rm -r fuzz/images` makes them anew. What it finds lies in fuzz/artifacts.
fuzz: deps
	@test -d fuzz/images || fuzz/seeds
	@CARGO='$(CARGO)' TARGET='$(abspath $(TARGET))' FUZZ='$(FUZZ)' FUZZ_TARGETS='$(FUZZ_TARGETS)' CARGO_FUZZ='$(CARGO_FUZZ)' fuzz/run

book: $(TARGET)/tools/bin/mdbook
	$(CARGO) build --bin onesweep
	PATH=$(abspath $(TARGET))/tools/bin:$$PATH book/build $(TARGET)/debug/onesweep $(TARGET)/book

doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

clean:
	$(CARGO) clean
	rm -rf web/node_modules

.PHONY: help deps build-deps build install uninstall deb-deps deb deb-test book capi install-capi capi-asan-test header wheel python python-test try test test-long features-lint engines-test yara-test pjdfstest install-test vm vm-test pressure-test web web-test bench bench-resume bench-keep bench-quick peers fuzz doc clean python-develop python-bench python-disk-bench torch-test ray-test free-threaded-test
