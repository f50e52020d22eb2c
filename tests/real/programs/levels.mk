# make -j3 -s -f levels.mk STEPS=n PACE=seconds: levels of three files each, made side by side from those of the level before by
# shells, sleep, sort and cksum. Every level prints one line.
SHELL := /bin/sh
STEPS ?= 10
PACE ?= 0.05
LEVELS := $(shell seq 1 $(STEPS))

all: level-$(STEPS)
	@echo "done `cat a-$(STEPS) b-$(STEPS) c-$(STEPS) | cksum`"
level-0:
	@for f in a b c; do echo $$f > $$f-0; done; touch $@

define level
a-$(1) b-$(1) c-$(1): level-$(shell expr $(1) - 1)
	@sleep $(PACE); f=$$@; seq 1 12 | while read n; do echo "$$$$n $$$${f%%-*} $(1) `cat b-$(shell expr $(1) - 1)`"; done | sort -r | cksum > $$@
level-$(1): a-$(1) b-$(1) c-$(1)
	@cat $$^ | cksum | sed "s/^/level $(1) /"; touch $$@
endef
$(foreach n,$(LEVELS),$(eval $(call level,$(n))))
