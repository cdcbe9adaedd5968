#include "lockstep/plan/layout.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/recipe/schema.h"

namespace lockstep::plan {
namespace {

TEST(LayoutWords, SayWhatTheRecipeSays) {
  struct Case {
    const char* words;
    int64_t ranks;
    bool exact;
    std::vector<std::string> overrides;
  };
  for (const Case& c : std::vector<Case>{
           {"data=4", 4, true, {}},
           {"data=4,zero=3", 4, true, {"parallel.zero=3"}},
           {"data=4,zero=3,shard=2", 4, true, {"parallel.zero=3", "parallel.shard=2"}},
           {"tensor=2", 2, false, {"parallel.tensor=2"}},
           {"tensor=2,sequence", 2, false, {"parallel.tensor=2", "parallel.sequence=true"}},
           {"context=2", 2, false, {"parallel.context=2", "parallel.context_form=ring"}},
           {"context=2,form=heads", 2, false, {"parallel.context=2", "parallel.context_form=heads"}},
           {"pipeline=2,schedule=gpipe", 2, true, {"parallel.pipeline=2", "parallel.schedule=gpipe"}},
           {"pipeline=2,schedule=interleaved",
            2,
            true,
            {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=2"}},
           {"pipeline=2,schedule=interleaved,chunks=3",
            2,
            true,
            {"parallel.pipeline=2", "parallel.schedule=interleaved", "parallel.chunks=3"}},
           {"data=2,zero=3,tensor=2,pipeline=2,schedule=1f1b",
            8,
            false,
            {"parallel.zero=3", "parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=1f1b"}}}) {
    const Layout layout = parse_layout(c.words);
    EXPECT_EQ(layout.words(), c.words);
    EXPECT_EQ(parse_layout(layout.words()), layout) << c.words;
    EXPECT_EQ(layout.ranks(), c.ranks) << c.words;
    EXPECT_EQ(layout.exact(), c.exact) << c.words;
    EXPECT_EQ(layout.overrides(), c.overrides) << c.words;
  }
  EXPECT_EQ(parse_layout("pipeline=2").words(), "pipeline=2,schedule=1f1b");
  EXPECT_EQ(parse_layout("context=2,context_form=heads").words(),
            "context=2,form=heads");  // the recipe's word
}

TEST(LayoutWords, WrongOnesAreNamed) {
  for (const auto& [words, says] : std::vector<std::pair<std::string, std::string>>{
           {"date=4", "unknown setting \"date\""},
           {"data=0", "data must be an integer"},
           {"data=4x", "\"4x\""},
           {"data=99999999999999", "data must be an integer"},
           {"data=", "\"\""},
           {"data=2,data=2", "is given twice"},
           {"zero=3", "zero needs data"},
           {"data=2,zero=4", "zero must be an integer from 0 to 3"},
           {"sequence", "sequence needs tensor"},
           {"tensor=2,sequence=maybe", "one of true, false"},
           {"tensor=2,form=heads", "form needs context"},
           {"context_form=heads", "form needs context"},
           {"context=2,form=ring,context_form=heads", "is given twice"},
           {"pipeline=2,schedule=dualpipe", "schedule must be one of gpipe"},
           {"data=2,schedule=gpipe", "schedule needs pipeline"},
           {"pipeline=2,chunks=3", "chunks needs schedule=interleaved"},
           {"pipeline=2,schedule=interleaved,chunks=1", "chunks must be an integer from 2"},
           {"data=4096,tensor=2", "8192 ranks"},
           {",", "it is empty"}}) {
    try {
      parse_layout(words);
      ADD_FAILURE() << words;
    } catch (const base::ConfigError& error) {
      EXPECT_EQ(error.number(), 182) << words;
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << words << ": " << error.what();
    }
  }
  EXPECT_THROW(parse_layouts(" ; "), base::ConfigError);
}

TEST(LayoutWords, ListsAndUsualOnes) {
  EXPECT_EQ(parse_layouts("data=2 tensor=2;data=2\ncontext=2").size(), 3u);
  for (const int64_t ranks : {1, 2, 4, 8}) {
    const std::vector<Layout> usual = usual_layouts(ranks);
    EXPECT_EQ(usual.empty(), ranks == 1);
    for (const Layout& layout : usual) EXPECT_LE(layout.ranks(), ranks) << layout.words();
  }
  EXPECT_GT(usual_layouts(8).size(), usual_layouts(4).size());
}

TEST(LayoutWords, TakenOffLeavesOneRank) {
  recipe::Recipe recipe;
  recipe.parallel.zero = "3";
  recipe.parallel.shard = 2;
  recipe.parallel.data = 8;
  recipe.parallel.engine = "gloo";
  take_layout_off(recipe);
  EXPECT_EQ(recipe.parallel.zero, recipe::Recipe().parallel.zero);
  EXPECT_TRUE(recipe.parallel.shard.is_auto);
  EXPECT_TRUE(recipe.parallel.data.is_auto);
  EXPECT_EQ(recipe.parallel.engine, "gloo");  // no layout: how ranks talk
}

}  // namespace
}  // namespace lockstep::plan
