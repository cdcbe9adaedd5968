#include "lockstep/cli/plan/offers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/money.h"
#include "lockstep/base/text.h"
#include "lockstep/plan/money.h"
#include "lockstep/run/session/choose_layout.h"
#include "lockstep/run/session/forecast.h"

namespace lockstep::cli {

namespace {

bool has_word(const plan::MachineRow& row, const std::string& word) {
  return word.empty() || row.name.find(word) != std::string::npos || row.cloud == word || row.device == word;
}

// What a run takes on a place, whoever rents it.
struct Taken {
  std::string layout, refused;
  double step_seconds = 0, hours = 0, save_seconds = 0, save_hours = 0, error = 0;
  int64_t steps = 0;
};

// The recipe with `per_strand` slices of each strand, and a batch that is smaller by as much: what a slice
// more costs is the same from the third on, and so is the memory.
recipe::Resolved with_slices(const recipe::Resolved& resolved, int64_t per_strand) {
  recipe::Resolved few = resolved;
  recipe::Recipe::Batch& batch = few.recipe.batch;
  const int64_t samples = batch.global / batch.slices.value;  // of a slice
  batch.slices.value = per_strand * batch.strands.value;
  batch.global = samples * batch.slices.value;
  return few;
}

constexpr int64_t kSlices = 2;  // of each strand, that are compiled

class Shopper {
 public:
  Shopper(const recipe::Resolved& resolved, const ShopOptions& options)
      : resolved_(resolved), options_(options) {}

  Offers run(const std::function<void(const std::string&)>& say) {
    for (const plan::MachineRow& row : plan::catalogue().machines) {
      const plan::DeviceRow* device = plan::catalogue().find_device(row.device);
      if (!device->trains() || !has_word(row, options_.only)) continue;
      look_at(row, say);
    }
    std::stable_sort(offers_.list.begin(), offers_.list.end(), [](const Offer& a, const Offer& b) {
      return a.will_do() != b.will_do() ? a.will_do() : a.usd < b.usd;
    });
    return std::move(offers_);
  }

 private:
  // One machine, then twice as many, as long as more of them are of use.
  void look_at(const plan::MachineRow& row, const std::function<void(const std::string&)>& say) {
    std::string why;
    double fastest = 0;
    for (int machines = 1; machines <= options_.most_machines; machines *= 2) {
      if (row.most > 0 && machines > row.most) break;
      plan::Place place;
      try {
        place = plan::parse_place(fmt::format("{} x {}", machines, row.name));
      } catch (const base::ConfigError& error) {  // a profile of another build: no reason to give up the rest
        why = error.what();
        break;
      }
      say(place.words);
      const Taken& taken = taken_on(place);
      if (!taken.refused.empty()) {
        why = taken.refused;
        continue;  // more of them may have the memory
      }
      offers_.steps = taken.steps;
      add_offers(place, taken);
      const bool helps = fastest == 0 || taken.step_seconds < 0.8 * fastest;
      fastest = taken.step_seconds;
      why.clear();
      if (!helps) break;
    }
    if (fastest == 0 && !why.empty()) offers_.refused.emplace_back(row.name, why);
  }

  // Machines that differ in price and cloud alone are forecast once; of several, the network counts.
  const Taken& taken_on(const plan::Place& place) {
    const std::string key = fmt::format("{} {} {}", place.device->name, place.ranks,
                                        place.nodes > 1 ? place.model.between.bytes_per_second : 0);
    const auto [it, fresh] = known_.try_emplace(key);
    if (fresh) it->second = take(place);
    return it->second;
  }

  Taken take(const plan::Place& place) {
    try {
      const int64_t few = enough_slices(place);
      const int64_t rest = few > 0 && few == kSlices && !cuts_the_model(place) ? left_out(few) : 0;
      recipe::Resolved mine = resolved_;
      if (place.ranks > 1) {
        const recipe::Resolved look = few > 0 ? with_slices(resolved_, few) : resolved_;
        run::take_layout(mine, run::simple_layout(look, place, &compiled_));
      }
      if (rest > 0) mine = with_slices(mine, few);
      run::Forecast f = run::forecast(mine, place, &compiled_);
      if (rest > 0) {
        const run::Forecast fewer = run::forecast(with_slices(mine, kSlices - 1), place, &compiled_fewer_);
        f.take_step(f.step_seconds + static_cast<double>(rest) * (f.step_seconds - fewer.step_seconds));
      }
      if (!f.fits())
        return {.refused = fmt::format("needs {} of {}", base::human_bytes(static_cast<double>(f.peak_bytes)),
                                       base::human_bytes(static_cast<double>(f.available_bytes)))};
      return {.layout = f.layout,
              .step_seconds = f.step_seconds,
              .hours = f.hours,
              .save_seconds = f.save_seconds,
              .save_hours = f.save_hours(),
              .error = f.error,
              .steps = f.steps};
    } catch (const base::ConfigError& error) {
      return {.refused = error.what()};
    }
  }

  bool cuts_the_model(const plan::Place& place) const {
    return place.ranks > resolved_.recipe.batch.strands.value;
  }
  int64_t left_out(int64_t few) const {
    return resolved_.recipe.batch.slices.value / resolved_.recipe.batch.strands.value - few;
  }

  // Slices of each strand with which layouts are compared, and where no rank cuts the model priced, too; more
  // ranks want more of them, to keep stages busy. 0: all of them, for fewer would save nothing.
  int64_t enough_slices(const plan::Place& place) const {
    const recipe::Recipe::Batch& batch = resolved_.recipe.batch;
    if (batch.slices.is_auto || batch.strands.is_auto) return 0;
    if (batch.slices.value % batch.strands.value != 0 || batch.global % batch.slices.value != 0) return 0;
    const int64_t few = std::max(kSlices, place.ranks / batch.strands.value / 2);
    return left_out(few) > 1 ? few : 0;
  }

  void add_offers(const plan::Place& place, const Taken& taken) {
    for (const plan::Tariff tariff : options_.tariffs) {
      const std::vector<Offer> all = in_regions(place, taken, tariff);
      // Of a machine's regions, the cheapest that will do; where none does, the cheapest says why.
      const auto better = [](const Offer& a, const Offer& b) {
        return a.will_do() != b.will_do() ? a.will_do() : a.usd < b.usd;
      };
      const auto best = std::min_element(all.begin(), all.end(), better);
      if (best != all.end()) offers_.list.push_back(*best);
    }
  }

  std::vector<Offer> in_regions(const plan::Place& place, const Taken& taken, plan::Tariff tariff) const {
    std::vector<Offer> all;
    for (const plan::RegionPrice& price : place.row->prices) {
      if (price.of(tariff) <= 0 || (!options_.region.empty() && price.region != options_.region)) continue;
      Offer offer{.place = place, .tariff = tariff, .region = price.region, .layout = taken.layout};
      offer.step_seconds = taken.step_seconds, offer.error = taken.error;
      offer.measured = place.model.measured;
      offer.usd_per_hour = price.of(tariff) * place.nodes;
      offer.hours = taken.hours, offer.usd = offer.usd_per_hour * taken.hours;
      if (tariff == plan::Tariff::spot) {
        const plan::Spot spot = plan::expect_spot({.hours = taken.hours - taken.save_hours,
                                                   .save_hours = taken.save_hours,
                                                   .machines = place.nodes,
                                                   .preemptions_per_day = options_.preemptions_per_day,
                                                   .save_seconds = taken.save_seconds,
                                                   .usd_per_hour = offer.usd_per_hour});
        if (!spot.ends) continue;
        offer.hours = spot.hours, offer.usd = spot.usd;
      }
      judge(offer);
      all.push_back(std::move(offer));
    }
    return all;
  }

  void judge(Offer& offer) const {
    std::vector<std::string> against;
    if (options_.hours && offer.hours > *options_.hours)
      against.push_back(
          fmt::format("{} too late", base::human_duration((offer.hours - *options_.hours) * 3600)));
    if (options_.usd && offer.usd > *options_.usd)
      against.push_back(fmt::format("{} too dear", base::dollars(offer.usd - *options_.usd)));
    if (options_.quota) judge_quota(offer, against);
    offer.against = base::join(against, ", ");
  }

  void judge_quota(Offer& offer, std::vector<std::string>& against) const {
    const std::vector<plan::QuotaVerdict> found =
        plan::verdicts(*options_.quota, {.row = offer.place.row,
                                         .machines = offer.place.nodes,
                                         .tariff = offer.tariff,
                                         .region = offer.region,
                                         .purpose = fmt::format("for {:.0f} hours", offer.hours)});
    if (found.empty()) {
      against.push_back("no quota known");
      return;
    }
    offer.quota = found[0];
    if (!found[0].fits())
      against.push_back(fmt::format("quota {:.0f} of {:.0f} {}",
                                    std::max(0.0, found[0].limit - found[0].used), found[0].needed,
                                    found[0].counts));
  }

  const recipe::Resolved& resolved_;
  const ShopOptions& options_;
  std::map<std::string, Taken> known_;
  run::Known compiled_, compiled_fewer_;
  Offers offers_;
};

}  // namespace

Offers find_offers(const recipe::Resolved& resolved, const ShopOptions& options,
                   const std::function<void(const std::string&)>& say) {
  return Shopper(resolved, options).run(say);
}

}  // namespace lockstep::cli
