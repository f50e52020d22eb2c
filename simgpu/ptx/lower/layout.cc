// Orders the blocks of a function and assigns storage to its registers.
#include "ptx/lower/lower.h"

namespace simgpu::ptx {

namespace {

struct BasicBlock {
  uint32_t begin, end;    // in the draft
  uint32_t first, count;  // successors, in a table
  uint32_t new_begin, new_end;
};

class Layout {
 public:
  Layout(Lowering* l, Function* f, Draft* draft) : l_(l), f_(f), d_(*draft) {}

  bool run() {
    find_blocks();
    order();
    emit();
    allocate();
    rewrite();
    return true;
  }

 private:
  static bool ends(const Ins& i) { return i.flags & kEndsBlock; }
  Arena& arena() { return l_->module->syntax.arena; }

  uint32_t block_of_label(uint32_t label) const { return block_at_[d_.labels[label]]; }

  void find_blocks() {
    const auto n = (uint32_t)d_.code.size();
    Vec<uint8_t> starts;
    starts.resize(n + 1);
    starts[0] = 1;
    for (uint32_t p : d_.labels) starts[p] = 1;
    for (uint32_t i = 0; i < n; ++i)
      if (ends(d_.code[i])) starts[i + 1] = 1;
    block_at_.resize(n + 1);
    for (uint32_t i = 0; i < n; ++i) {
      if (starts[i]) blocks_.push(BasicBlock{i, i, 0, 0, 0, 0});
      block_at_[i] = (uint32_t)blocks_.size() - 1;
      blocks_.back().end = i + 1;
    }
    block_at_[n] = (uint32_t)blocks_.size() - 1;
    for (uint32_t b = 0; b < blocks_.size(); ++b) {
      BasicBlock& block = blocks_[b];
      const Ins& last = d_.code[block.end - 1];
      block.first = (uint32_t)successors_.size();
      if (!(last.flags & kNoFallThrough) && b + 1 < blocks_.size()) successors_.push(b + 1);
      if (last.fn == op_jump || last.fn == op_branch)
        successors_.push(block_of_label((uint32_t)last.imm));
      if (last.fn == op_brx)
        for (uint32_t k = 0; k < (uint32_t)last.imm; ++k)
          successors_.push(block_of_label(last.list[k]));
      block.count = (uint32_t)successors_.size() - block.first;
    }
  }

  // Depth-first from the entry; `by_depth` visits successors outside of loops first. Leaves reverse
  // postorder.
  void depth_first(bool by_depth, Vec<uint32_t>* out) {
    struct Visit {
      uint32_t block, next;
    };
    Vec<Visit> stack;
    Vec<uint8_t> seen;
    seen.resize(blocks_.size());
    Vec<uint32_t> post;
    stack.push({0, 0});
    seen[0] = 1;
    while (!stack.empty()) {
      Visit& v = stack.back();
      const BasicBlock& b = blocks_[v.block];
      if (v.next == b.count) {
        post.push(v.block);
        stack.pop();
        continue;
      }
      uint32_t pick = v.next++;
      uint32_t s = successors_[b.first + pick];
      if (by_depth && b.count == 2) {
        uint32_t x = successors_[b.first], y = successors_[b.first + 1];
        bool swap = depth_[y] < depth_[x] || (depth_[y] == depth_[x] && y > x);
        if (swap) s = pick == 0 ? y : x;
      }
      if (!seen[s]) {
        seen[s] = 1;
        stack.push({s, 0});
      }
    }
    out->clear();
    for (size_t i = post.size(); i-- > 0;) out->push(post[i]);
  }

  // Loop depth of each block, from back edges to dominators.
  void find_loops(const Vec<uint32_t>& rpo) {
    const auto n = (uint32_t)blocks_.size();
    depth_.resize(n);
    Vec<uint32_t> number, idom, head, next, from;
    number.resize(n);
    for (uint32_t& x : number) x = kNone;
    for (uint32_t i = 0; i < rpo.size(); ++i) number[rpo[i]] = i;
    // Predecessors as linked lists.
    head.resize(n);
    for (uint32_t& x : head) x = kNone;
    for (uint32_t b : rpo)
      for (uint32_t k = 0; k < blocks_[b].count; ++k) {
        uint32_t s = successors_[blocks_[b].first + k];
        from.push(b);
        next.push(head[s]);
        head[s] = (uint32_t)from.size() - 1;
      }
    idom.resize(n);
    for (uint32_t& x : idom) x = kNone;
    idom[0] = 0;
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t i = 1; i < rpo.size(); ++i) {
        uint32_t b = rpo[i], best = kNone;
        for (uint32_t e = head[b]; e != kNone; e = next[e]) {
          uint32_t p = from[e];
          if (idom[p] == kNone) continue;
          if (best == kNone) {
            best = p;
            continue;
          }
          uint32_t x = p, y = best;
          while (x != y) {
            while (number[x] > number[y]) x = idom[x];
            while (number[y] > number[x]) y = idom[y];
          }
          best = x;
        }
        if (best != idom[b]) {
          idom[b] = best;
          changed = true;
        }
      }
    }
    Vec<uint32_t> mark, work;
    mark.resize(n);
    for (uint32_t& x : mark) x = kNone;
    for (uint32_t h : rpo) {
      work.clear();
      for (uint32_t e = head[h]; e != kNone; e = next[e]) {
        uint32_t u = from[e], x = u;
        if (number[u] < number[h]) continue;
        while (number[x] > number[h]) x = idom[x];
        if (x == h && mark[u] != h) {
          mark[u] = h;
          work.push(u);
        }
      }
      if (work.empty()) continue;
      if (mark[h] != h) {
        mark[h] = h;
        ++depth_[h];
      }
      while (!work.empty()) {
        uint32_t b = work.back();
        work.pop();
        if (b == h) continue;
        ++depth_[b];
        for (uint32_t e = head[b]; e != kNone; e = next[e])
          if (mark[from[e]] != h) {
            mark[from[e]] = h;
            work.push(from[e]);
          }
      }
    }
  }

  void order() {
    Vec<uint32_t> rpo;
    depth_first(false, &rpo);
    find_loops(rpo);
    depth_first(true, &order_);
  }

  // Copies the blocks in order; falls through only to the next one, else a jump is put in.
  void emit() {
    for (uint32_t k = 0; k < order_.size(); ++k) {
      BasicBlock& b = blocks_[order_[k]];
      const uint32_t after = k + 1 < order_.size() ? order_[k + 1] : kNone;
      b.new_begin = (uint32_t)out_.size();
      for (uint32_t i = b.begin; i < b.end; ++i) {
        out_.push(d_.code[i]);
        roles_.push(d_.roles[i]);
      }
      Ins& last = out_.back();
      const uint32_t line = last.line;
      if (last.fn == op_jump) {
        if (block_of_label((uint32_t)last.imm) == after && b.end - b.begin > 1) {
          out_.pop();
          roles_.pop();
        }
      } else if (!(last.flags & kNoFallThrough) && order_[k] + 1 < blocks_.size() &&
                 order_[k] + 1 != after) {
        const uint32_t fall = order_[k] + 1;
        if (last.fn == op_branch && block_of_label((uint32_t)last.imm) == after) {
          last.flags ^= kGuardNegated;
          last.imm = label_for(fall);
        } else {
          Ins jump{};
          jump.fn = op_jump;
          jump.d = jump.a = jump.b = jump.c = jump.e = jump.g = kNone;
          jump.imm = label_for(fall);
          jump.line = line;
          jump.flags = kEndsBlock | kNoFallThrough;
          out_.push(jump);
          roles_.push(Roles{});
        }
      }
      b.new_end = (uint32_t)out_.size();
    }
  }
  uint32_t label_for(uint32_t block) {
    d_.labels.push(blocks_[block].begin);
    return (uint32_t)d_.labels.size() - 1;
  }

  // Calls f(register, written, partly) for each register of instruction i.
  template <class F>
  void registers(uint32_t i, F f) {
    Ins& in = out_[i];
    const Roles& r = roles_[i];
    const bool partly = in.inner != nullptr;
    auto one = [&](uint32_t& o, bool written) {
      if (is_virtual(o)) f(o, written, partly);
    };
    one(in.a, false);
    one(in.b, false);
    one(in.c, false);
    one(in.g, false);
    if (r.e_read) one(in.e, false);
    if (r.d_read) one(in.d, false);
    for (unsigned k = r.list_written; k < r.list_count; ++k) one(in.list[k], false);
    if (!r.e_read) one(in.e, true);
    if (!r.d_read) one(in.d, true);
    for (unsigned k = 0; k < r.list_written; ++k) one(in.list[k], true);
  }

  void allocate() {
    Vec<uint64_t> in;
    find_live(&in);
    Vec<uint32_t> begin, end;
    find_intervals(in, &begin, &end);
    scan(begin, end);
  }

  size_t live_words() const { return (d_.classes.size() + 63) / 64; }

  // One bit for each register and block: `use` of those that block k reads before it has written
  // them whole, `kill` of those that it writes whole first.
  void find_uses(Vec<uint64_t>* use, Vec<uint64_t>* kill) {
    const size_t words = live_words();
    for (size_t k = 0; k < order_.size(); ++k) {
      uint64_t *u = use->data() + k * words, *d = kill->data() + k * words;
      const BasicBlock& b = blocks_[order_[k]];
      for (uint32_t i = b.new_begin; i < b.new_end; ++i) {
        registers(i, [&](uint32_t o, bool written, bool partly) {
          uint32_t v = o & ~kVirtual;
          uint64_t bit = 1ull << (v & 63);
          bool killed = d[v >> 6] & bit;
          if (!written || partly) {
            if (!killed) u[v >> 6] |= bit;
          } else {
            d[v >> 6] |= bit;
          }
        });
      }
    }
  }

  // Computes which registers are needed at the beginning (`in`) and at the end (live_out_) of each
  // block.
  void find_live(Vec<uint64_t>* in) {
    const size_t words = live_words(), n = order_.size();
    Vec<uint64_t> kill, use;
    in->resize(words * n);
    live_out_.resize(words * n);
    kill.resize(words * n);
    use.resize(words * n);
    Vec<uint32_t> position;  // of a block in order_
    position.resize(blocks_.size());
    for (uint32_t k = 0; k < n; ++k) position[order_[k]] = k;
    find_uses(&use, &kill);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t k = n; k-- > 0;) {
        const BasicBlock& b = blocks_[order_[k]];
        uint64_t *o = live_out_.data() + k * words, *i = in->data() + k * words,
                 *u = use.data() + k * words, *d = kill.data() + k * words;
        for (uint32_t s = 0; s < b.count; ++s) {
          const uint64_t* t = in->data() + position[successors_[b.first + s]] * words;
          for (size_t w = 0; w < words; ++w) o[w] |= t[w];
        }
        for (size_t w = 0; w < words; ++w) {
          uint64_t v = u[w] | (o[w] & ~d[w]);
          if (v != i[w]) {
            i[w] = v;
            changed = true;
          }
        }
      }
    }
    for (size_t w = 0; w < words; ++w)
      if ((*in)[w] != 0) f_->zero_registers = true;
  }

  // One interval per register over the final order: its first and last point; kNone: never used.
  void find_intervals(const Vec<uint64_t>& in, Vec<uint32_t>* begin, Vec<uint32_t>* end) {
    const size_t words = live_words();
    begin->resize(d_.classes.size());
    end->resize(d_.classes.size());
    for (uint32_t& x : *begin) x = kNone;
    auto extend = [&](uint32_t v, uint32_t p) {
      uint32_t &first = (*begin)[v], &last = (*end)[v];
      if (first == kNone) {
        first = last = p;
        return;
      }
      if (p < first) first = p;
      if (p > last) last = p;
    };
    for (size_t k = 0; k < order_.size(); ++k) {
      const BasicBlock& b = blocks_[order_[k]];
      for (size_t w = 0; w < words; ++w) {
        for (uint64_t m = in [k * words + w]; m != 0; m &= m - 1)
          extend((uint32_t)(w * 64 + (uint32_t)__builtin_ctzll(m)), b.new_begin * 2);
        for (uint64_t m = live_out_[k * words + w]; m != 0; m &= m - 1)
          extend((uint32_t)(w * 64 + (uint32_t)__builtin_ctzll(m)), b.new_end * 2);
      }
      for (uint32_t i = b.new_begin; i < b.new_end; ++i) {
        const bool many = out_[i].flags & kSetsManyRegisters;
        registers(i, [&](uint32_t o, bool written, bool) {
          extend(o & ~kVirtual, i * 2 + (written || many ? 1 : 0));
        });
      }
    }
  }

  // Linear scan: registers by start and by end, as linked lists.
  void scan(const Vec<uint32_t>& begin, const Vec<uint32_t>& end) {
    const auto count = (uint32_t)begin.size();
    const auto last = (uint32_t)out_.size() * 2 + 2;
    Vec<uint32_t> starts, ends, next_start, next_end;
    starts.resize(last + 1);
    ends.resize(last + 1);
    for (uint32_t& x : starts) x = kNone;
    for (uint32_t& x : ends) x = kNone;
    next_start.resize(count);
    next_end.resize(count);
    place_.resize(count);
    for (uint32_t v = count; v-- > 0;) {
      if (begin[v] == kNone) continue;
      next_start[v] = starts[begin[v]];
      starts[begin[v]] = v;
      next_end[v] = ends[end[v]];
      ends[end[v]] = v;
    }
    Vec<uint32_t> free_slots[3];
    for (uint32_t p = 0; p <= last; ++p) {
      if (p > 0)
        for (uint32_t v = ends[p - 1]; v != kNone; v = next_end[v])
          free_slots[d_.classes[v]].push(place_[v]);
      for (uint32_t v = starts[p]; v != kNone; v = next_start[v]) {
        Vec<uint32_t>& slots = free_slots[d_.classes[v]];
        if (slots.empty()) {
          place_[v] = used_[d_.classes[v]]++;
        } else {
          place_[v] = slots.back();
          slots.pop();
        }
      }
    }
  }

  void rewrite() {
    const uint32_t base2 = 0, base1 = base2 + used_[2] * 512, base0 = base1 + used_[1] * 256;
    f_->reg_bytes = base0 + used_[0] * 128;
    f_->registers = used_[0] + 2 * used_[1] + 4 * used_[2];
    f_->code_count = (uint32_t)out_.size();
    f_->code = arena().make<Ins>(out_.size() + 1);
    describe_flow(base0, base1, base2);
    for (uint32_t i = 0; i < out_.size(); ++i) {
      // A list is not shared, so it is rewritten in place; brx lists hold labels.
      registers(i, [&](uint32_t& o, bool, bool) {
        uint32_t v = o & ~kVirtual, slot = place_[v];
        o = d_.classes[v] == 0   ? base0 + slot * 128
            : d_.classes[v] == 1 ? base1 + slot * 256
                                 : base2 + slot * 512;
      });
      Ins& in = f_->code[i];
      in = out_[i];
      f_->loops |= in.fn == op_call || in.fn == op_brx;
      if (in.fn == op_jump || in.fn == op_branch) {
        in.target = f_->code + blocks_[block_of_label((uint32_t)in.imm)].new_begin;
        f_->loops |= in.target <= &in;
      } else if (in.fn == op_brx) {
        auto** table = arena().make<const Ins*>((size_t)in.imm + 1);
        for (uint32_t k = 0; k < (uint32_t)in.imm; ++k)
          table[k] = f_->code + blocks_[block_of_label(in.list[k])].new_begin;
        in.table = table;
      }
    }
  }

  // Records the facts about the final code that the translation to machine code needs.
  void describe_flow(uint32_t base0, uint32_t base1, uint32_t base2) {
    const auto n = (uint32_t)order_.size();
    const size_t words = (d_.classes.size() + 63) / 64, units = (f_->reg_bytes / 128 + 63) / 64;
    auto* roles = arena().make<Roles>(roles_.size() + 1);
    memcpy(roles, roles_.data(), roles_.size() * sizeof(Roles));
    auto* flow = arena().make<FlowBlock>(n + 1);
    auto* next = arena().make<uint32_t>(successors_.size() + 1);
    auto* live = arena().make<uint64_t>(units * n + 1);
    Vec<uint32_t> position;
    position.resize(blocks_.size());
    for (uint32_t k = 0; k < n; ++k) position[order_[k]] = k;
    for (size_t k = 0; k < successors_.size(); ++k) next[k] = position[successors_[k]];
    for (uint32_t k = 0; k < n; ++k) {
      const BasicBlock& b = blocks_[order_[k]];
      uint64_t* l = live + k * units;
      flow[k] = FlowBlock{b.new_begin, b.new_end, b.first, b.count, l};
      for (size_t w = 0; w < words; ++w)
        for (uint64_t m = live_out_[k * words + w]; m != 0; m &= m - 1) {
          const auto v = (uint32_t)(w * 64 + (uint32_t)__builtin_ctzll(m));
          const unsigned c = d_.classes[v];
          const uint32_t o = (c == 0 ? base0 : c == 1 ? base1 : base2) + (place_[v] * 128 << c);
          for (uint32_t u = o / 128; u < o / 128 + (1u << c); ++u) l[u / 64] |= 1ull << (u % 64);
        }
    }
    f_->roles = roles;
    f_->flow = flow;
    f_->flow_next = next;
    f_->flow_count = n;
  }

  Lowering* l_;
  Function* f_;
  Draft& d_;
  Vec<uint64_t> live_out_;
  Vec<BasicBlock> blocks_;
  Vec<uint32_t> block_at_, successors_, depth_, order_;
  Vec<Ins> out_;
  Vec<Roles> roles_;
  Vec<uint32_t> place_;
  uint32_t used_[3] = {0, 0, 0};
};

}  // namespace

bool finish_function(Lowering* l, Function* f, Draft* draft) { return Layout(l, f, draft).run(); }

}  // namespace simgpu::ptx
